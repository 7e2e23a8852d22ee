"""Who answers when the model does not: rungs from the best to the surest."""
