"""Owns where people already train: callbacks of training libraries, and loggers of runs.

Each file is imported by whoever wants it, and names the pip command where its library is missing.
"""
