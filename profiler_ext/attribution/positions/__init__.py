"""Owns where each thread of the program stood at a time of the trace."""
