"""HTTP: what is said over the wire, and nothing about how it comes to be."""
