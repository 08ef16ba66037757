"""Owns what commands have in common: the words that options may be, and the exit codes."""

from __future__ import annotations

import argparse
from pathlib import Path

FAILED = 2
FOUND = 4
"""A finding has more at stake than ``report --fail-above`` allows."""
READER_GONE = 141
"""What a shell says of a program that wrote into a closed pipe."""


def add_roots(parser: argparse.ArgumentParser) -> None:
    """Let the user say from which folders source may be shown."""
    parser.add_argument(
        "--root",
        dest="roots",
        action="append",
        type=Path,
        default=[],
        metavar="DIR",
        help="show source from this folder too, besides the working folder and Python's library",
    )
