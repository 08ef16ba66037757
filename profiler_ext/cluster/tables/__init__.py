"""Owns the tables of a job as pandas frames: sums over its ranks, and how these differ."""
