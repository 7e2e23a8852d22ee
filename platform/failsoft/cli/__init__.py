"""The command line: parses, wires, prints."""
