"""Owns profiling in this process: capture switched on and off, and ``profile``."""
