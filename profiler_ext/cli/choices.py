"""Owns what commands have in common: the words that options may be, and the exit codes."""

from __future__ import annotations

FAILED = 2
READER_GONE = 141
"""What a shell says of a program that wrote into a closed pipe."""
FORMATS = ("text", "csv", "json", "md")
TABLES = ("line", "module", "op", "kernel", "phase", "link")
