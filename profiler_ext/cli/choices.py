"""Owns what commands have in common: the words that options may be, and the exit codes."""

from __future__ import annotations

FAILED = 2
FORMATS = ("text", "csv", "json", "md")
TABLES = ("line", "module", "op", "kernel", "phase", "link")
