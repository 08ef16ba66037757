"""Owns what is said of each launch: its places, their shares of it, and the evidence."""
