"""Matches what graph calls ran with the graphs' call sites."""
