"""What an attacker tries, and what holds it."""
