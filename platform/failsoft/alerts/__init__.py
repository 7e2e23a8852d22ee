"""Events that leave the house, and alerts that come in: who is told, and what an alert may do."""
