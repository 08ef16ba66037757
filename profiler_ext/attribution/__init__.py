"""Owns the pure functions that lead each launch back to the model."""
