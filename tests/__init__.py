"""Proof, by area; the package's tree is mirrored here."""
