"""A chaos suite for anybody's train script or Serve app: planned faults, an oracle each, one matrix."""
