"""Owns what is the same on both sides of a comparison, and by what that is known."""
