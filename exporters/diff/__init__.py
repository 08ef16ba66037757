"""A comparison of two runs and its gate, for a person and for CI."""
