"""Owns the tests of recall."""
