"""Owns FX nodes as records: lines, modules, links to the forward, and what passes lost."""
