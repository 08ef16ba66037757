"""Attributes each launch to places, with its share of time and the evidence."""
