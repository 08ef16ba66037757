"""Owns what commands have in common: options, answers for programs, and the exit codes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_ext.cli.printing import print_line, print_message, write

if TYPE_CHECKING:
    from profiler_ext.exporters.answers.documents import Answer

FAILED = 2
NEVER_STEPPED = 3
ABOVE_LIMIT = 4
TOO_FEW = 5
STDOUT_CLOSED = 141
STATUSES = {
    0: "what was asked is done",
    FAILED: "an error, which one sentence on standard error tells; or `doctor` found what capture "
    "cannot do without; or what a command line says is not understood",
    NEVER_STEPPED: "of `run`: the script never ended a step, so there is no session",
    ABOVE_LIMIT: "a finding is above the limit of `report --fail-above`, or a `diff --fail-if` holds",
    TOO_FEW: "a condition of `diff --fail-if` cannot be told from noise: too few steps or "
    "runs, or steps that cannot be compared",
    STDOUT_CLOSED: "whoever read standard output has closed it, as `| head` does",
}
"""What each status of a command means; `run` has the script's own where that is not 0."""
DEFAULT = "(default: %(default)s)"


def add_session(parser: argparse.ArgumentParser) -> None:
    """Let the user name a session."""
    parser.add_argument(
        "session",
        type=Path,
        metavar="DIR",
        help="folder of a session, of its ranks, of traces, or a trace file",
    )
    add_jobs(parser)


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """Let the user say how many processes read a long file."""
    parser.add_argument(
        "--jobs",
        type=positive_int,
        metavar="N",
        help="read a long file with so many processes at most (default: one a core)",
    )


def positive_int(text: str) -> int:
    """Read a number above zero.

    Args:
        text: the number.

    Returns:
        It.

    Raises:
        argparse.ArgumentTypeError: It is none.
    """
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above zero")
    return int(text)


def add_rank(parser: argparse._ActionsContainer) -> None:
    """Let the user choose a rank."""
    parser.add_argument("--rank", type=int, metavar="N", help="only this rank (default: all)")


def add_step(parser: argparse._ActionsContainer) -> None:
    """Let the user choose a step."""
    parser.add_argument(
        "--step", type=int, metavar="N", help="only this recorded step (default: their sum)"
    )


def add_folder(parser: argparse._ActionsContainer) -> None:
    """Let the user say where a new session is written."""
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("profile_out"),
        metavar="DIR",
        help=f"folder of the session {DEFAULT}",
    )
    parser.add_argument("--force", action="store_true", help="replace a session that is in DIR")


def add_format(parser: argparse.ArgumentParser, forms: Sequence[str]) -> None:
    """Let the user say for whom it is printed.

    Args:
        parser: the command's.
        forms: what ``--format`` may be; ``text`` is the default.
    """
    group = parser.add_argument_group("how it is printed")
    group.add_argument("--format", choices=forms, default="text", help=f"for whom {DEFAULT}")
    group.add_argument(
        "--budget",
        type=int,
        metavar="BYTES",
        help="of --format json print about so many bytes at most; it says what was left out "
        "(default: all)",
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
    print_line(str(path))
    for note in notes:
        print_message(note)


def add_roots(parser: argparse._ActionsContainer) -> None:
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
