"""The routing plan: what it says, where it is kept, how everybody learns of it."""
