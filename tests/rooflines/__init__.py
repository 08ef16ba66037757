"""Owns the tests of rooflines."""
