"""Kineto's format: reads a profiler trace to columns and writes it back."""
