"""Compares the values of a step: which work repeats, and of which nobody reads the result."""
