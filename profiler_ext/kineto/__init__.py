"""Kineto's spellings: reads a profiler trace to columns and writes it back."""
