"""Owns what commands have in common: options, answers for programs, and the exit codes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_ext.cli.printing import say, tell, write

if TYPE_CHECKING:
    from profiler_ext.exporters.answers.documents import Answer

FAILED = 2
FOUND = 4
"""A finding has more at stake than ``report --fail-above`` allows."""
READER_GONE = 141
"""What a shell says of a program that wrote into a closed pipe."""


def add_format(parser: argparse.ArgumentParser, forms: Sequence[str]) -> None:
    """Let the user say for whom it is printed.

    Args:
        parser: the command's.
        forms: what ``--format`` may be; ``text`` is the default.
    """
    parser.add_argument("--format", choices=forms, default="text")
    parser.add_argument(
        "--budget",
        type=int,
        metavar="BYTES",
        help="of --format json print about so many bytes at most; it says what was left out",
    )


def print_answer(answer: Answer, options: argparse.Namespace) -> None:
    """Print an answer for a program.

    Args:
        answer: the answer.
        options: has the budget.

    Raises:
        UsageError: The budget is too small.
        OutputError: Standard output cannot be written.
    """
    from profiler_ext.exporters.answers.bounds import answer_text

    write(answer_text(answer, options.budget))


def print_written(
    path: Path, format: str, notes: Sequence[str], options: argparse.Namespace
) -> None:
    """Print what a command wrote, and tell what is to be known of it.

    Args:
        path: the file or folder.
        format: the name of its format.
        notes: sentences.
        options: says for whom.

    Raises:
        OutputError: Standard output cannot be written.
    """
    if options.format == "json":
        from profiler_ext.exporters.answers.documents import Written

        print_answer(Written(path=str(path), format=format, notes=list(notes)), options)
        return
    say(str(path))
    for note in notes:
        tell(note)


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
