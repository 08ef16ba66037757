"""Owns the tests of the outputs."""
