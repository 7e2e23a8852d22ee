"""The fallback ladder."""
