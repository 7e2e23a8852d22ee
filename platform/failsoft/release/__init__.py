"""What a release must show before it meets traffic."""
