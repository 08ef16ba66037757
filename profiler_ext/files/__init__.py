"""Owns paths, and how files are written and read."""
