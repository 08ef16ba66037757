"""Owns the calls of compiled graphs in a trace, and what each of them ran."""
