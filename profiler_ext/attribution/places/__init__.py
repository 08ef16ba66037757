"""Owns what a node is to the user: its line, module, phase and forward node."""
