"""Owns the gate: conditions that a comparison is held against, so that a CI can fail on them."""
