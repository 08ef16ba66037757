"""Owns ``profiler-ext run``: its options, and what it does with them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from profiler_ext import renaming
from profiler_ext.cli.printing import console, say, tell, write
from profiler_ext.errors import OutputError, ReaderGoneError
from profiler_ext.run.program import Program

if TYPE_CHECKING:
    from profiler_ext.run.profiled_program import Outcome
    from profiler_ext.sessions.session import Session

HELP = "profile the steps of an untouched script"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Say what the command line may hold."""
    parser.add_argument("--skip", type=int, default=3, help="steps before the first recorded one")
    parser.add_argument("--steps", type=int, default=2, help="steps to record")
    parser.add_argument("--step-on", metavar="NAME", help="class of the optimizer that ends a step")
    parser.add_argument("-o", "--output", type=Path, default=Path("profile_out"), metavar="DIR")
    parser.add_argument("--force", action="store_true", help="replace a session that is in DIR")
    parser.add_argument(
        "--recompile",
        action="store_true",
        help="compile those graphs once more that a cache has from a run without capture",
    )
    parser.add_argument(
        "--no-lines",
        dest="lines",
        action="store_false",
        help="do not watch which lines run: eager work is led to its ops only",
    )
    parser.add_argument(
        "--shapes",
        action="store_true",
        help="record the shapes of eager ops' inputs, for their rooflines; it takes time, and "
        "meanwhile holds on to their tensors",
    )
    parser.add_argument(
        "--no-source",
        dest="source",
        action="store_false",
        help="keep no text of source in the session: neither that of lines nor generated code",
    )
    parser.add_argument("-m", dest="module", metavar="MODULE", nargs=argparse.REMAINDER)
    parser.add_argument("script", nargs="?", help="the script, with its own arguments after it")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(command=command, parser=parser)


def other_name(options: argparse.Namespace) -> str | None:
    """Return the name that this package has in this run, where the program has its own."""
    if __name__.split(".")[0] != renaming.NAME:
        return None
    folder = _program(options).folder
    taken = renaming.is_taken([] if folder is None else [folder])
    return renaming.load_under_other_name() if taken else None


def _program(options: argparse.Namespace) -> Program:
    words = options.module or [options.script, *options.arguments]
    if not words or words[0] is None:
        options.parser.error("name a script, or a module with -m")
    return Program(words[0], tuple(words[1:]), options.module is not None)


def command(options: argparse.Namespace) -> int:
    """Run the program; returns its exit code."""
    from profiler_ext.run.profiled_program import Request, run

    request = Request(
        program=_program(options),
        folder=options.output,
        skip=options.skip,
        steps=options.steps,
        step_on=options.step_on,
        force=options.force,
        recompile=options.recompile,
        lines=options.lines,
        shapes=options.shapes,
        source=options.source,
    )
    try:
        ending = run(request, _tell)
    except KeyboardInterrupt:  # before the script began, or while its report is printed
        _end_as_interrupted()
    if ending.was_interrupted:
        _end_as_interrupted()
    return ending.code


def _tell(outcome: Outcome) -> None:
    for remark in (*_printed(outcome.session, outcome.folder), *outcome.remarks):
        tell(remark)


def _end_as_interrupted() -> NoReturn:
    """End as Python ends a script that Ctrl-C ended, whose traceback is printed already."""
    sys.excepthook = lambda *_: None
    raise KeyboardInterrupt from None


def _printed(session: Session | None, folder: Path) -> tuple[str, ...]:
    """Print a session; where that fails the exit code stays the script's, and a remark says it."""
    try:
        if session is not None:
            print_session(session, folder)
    except ReaderGoneError:
        return ()
    except OutputError as error:
        return (f"{error}; what was recorded is in {folder}",)
    return ()


def print_session(session: Session, folder: Path) -> None:
    """Print where the time went, and the files that tell more.

    Args:
        session: what was recorded.
        folder: where it was written.

    Raises:
        OutputError: Standard output cannot be written.
        ReaderGoneError: Nobody reads it any more.
    """
    from profiler_ext.exporters.formats import in_run
    from profiler_ext.exporters.terminal import print_report

    if session.recording.settings.rank != 0:
        return
    output = console()
    print_report(session.analysis, output)
    write("\n")
    say(f"written to {folder}:")
    for name, use in (file for each in in_run() for file in each.in_run):
        output.print(f"  {name:24} {use}", markup=False, no_wrap=True, overflow="ellipsis")
