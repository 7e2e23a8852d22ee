"""The routing plan."""
