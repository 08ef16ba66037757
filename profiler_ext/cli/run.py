"""``profiler-ext run``: profiles a script and prints where the time went."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_ext import renaming
from profiler_ext.cli.common import (
    DEFAULT,
    Parser,
    add_folder,
    console,
    print_line,
    print_message,
)
from profiler_ext.errors import OutputError, StdoutClosedError, UsageError
from profiler_ext.run.program import Program
from profiler_ext.run.request import SKIP, STEPS, Amount, Repeats, Request, StepOn

if TYPE_CHECKING:
    from profiler_ext.exporters.formats import Format
    from profiler_ext.run.outcome import Outcome, SavedSessions, Series
    from profiler_ext.sessions.session import Session

HELP = "profile the steps of an unmodified script"

_STEP_ON = """what ends a step: an optimizer's class (AdamW); forward, the outermost call of
a model or of what torch.compile made; forward:CLASS, a call of a module of that class;
MODULE:FUNCTION, or :FUNCTION of the script (default: prof.step() of the script, else the
first optimizer, else the outermost call that repeats)"""
_KEEP = 5
_AMOUNTS = "--steps takes 1 or more, --skip 0 or more, or each a time: 500ms, 5s, 2min, 1h"


def add_options(parser: Parser) -> None:
    """Add the command's options."""
    parser.usage = "profiler-ext run [OPTION ...] SCRIPT [ARGUMENT ...]\n" + (
        "       profiler-ext run [OPTION ...] -m MODULE [ARGUMENT ...]"
    )
    parser.allow_abbrev = False  # argparse would look for ours among the program's options
    # One for all: of two the first would take a `--` of the program's away.
    parser.add_argument(
        "script", nargs=argparse.REMAINDER, metavar="SCRIPT", help="Python file and its arguments"
    )
    parser.add_argument(
        "-m",
        dest="module",
        metavar="MODULE",
        nargs=argparse.REMAINDER,
        help="module and its arguments, as with python -m",
    )
    _add_steps(parser.add_argument_group("steps"))
    _add_repeats(parser.add_argument_group("repeated recording"))
    _add_recorded(parser.add_argument_group("recording"))
    output = parser.add_argument_group("output")
    add_folder(output)
    output.add_argument("--verbose", action="store_true", help="describe each file written")
    parser.show_examples(
        ("two training steps, after five", "profiler-ext run train.py --lr 3e-4"),
        ("ten calls of a model, then end", "profiler-ext run --step-on forward --steps 10 --stop "
         "generate.py"),
        ("five seconds, a minute after the start", "profiler-ext run --skip 1min --steps 5s "
         "train.py"),
        ("two steps of each thousand, the last five times", "profiler-ext run --every 1000 "
         "train.py"),
        ("steps twice as slow as the median", "profiler-ext run --slow 2 --skip 20 train.py"),
        ("each of eight ranks", "torchrun --nproc-per-node 8 --no-python profiler-ext run ddp.py"),
    )  # fmt: skip
    parser.set_defaults(command=command, own_alias=own_alias, runs_program=True, parser=parser)


def _add_steps(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--skip",
        type=_amount,
        default=SKIP,
        metavar="N|TIME",
        help="steps, or time, to skip before recording; below 5 the step time without profiling "
        f"is not known {DEFAULT}",
    )
    group.add_argument(
        "--steps",
        type=_amount,
        default=STEPS,
        metavar="N|TIME",
        help=f"steps, or time, to record {DEFAULT}",
    )
    group.add_argument("--step-on", type=_step_on, default=StepOn(), metavar="WHAT", help=_STEP_ON)
    group.add_argument(
        "--stop",
        action="store_true",
        help="exit the script with status 0 once the recorded steps are written; several ranks "
        "exit at the same step",
    )


def _add_repeats(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--every", type=int, metavar="N", help="start a recording every N steps")
    group.add_argument(
        "--slow",
        type=float,
        metavar="X",
        help="keep only recordings with a step slower than X times the median of the 50 steps "
        "before it; without --every, recordings follow one another",
    )
    group.add_argument(
        "--keep",
        type=int,
        default=_KEEP,
        metavar="K",
        help=f"number of sessions to keep, the latest, each in DIR/step_N {DEFAULT}",
    )


def _add_recorded(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--shapes",
        action="store_true",
        help="also record input shapes of eager ops, for their rooflines; adds overhead and keeps "
        "the tensors alive meanwhile",
    )
    group.add_argument(
        "--memory",
        action="store_true",
        help="also record what is allocated and freed, and who holds it: the peak of memory by "
        "line, module and kind; records the training thread and autograd's only",
    )
    group.add_argument(
        "--values",
        action="store_true",
        help="also compare the values of a step before the recording, for work that is repeated or "
        "that no loss reads; that step runs without torch.compile and takes several times as long",
    )
    group.add_argument(
        "--no-lines",
        dest="lines",
        action="store_false",
        help="do not record which lines run: eager work is attributed to ops only",
    )
    group.add_argument(
        "--no-source",
        dest="source",
        action="store_false",
        help="keep no source text in the session, neither of lines nor of generated code",
    )
    group.add_argument(
        "--recompile",
        action="store_true",
        help="recompile graphs that were cached by a run without capture",
    )


def _amount(text: str) -> Amount:
    try:
        return Amount.parsed(text)
    except ValueError:
        raise UsageError(f"{text!r} is neither a number of steps nor a time: {_AMOUNTS}") from None


def _step_on(text: str) -> StepOn:
    try:
        return StepOn.parsed(text)
    except ValueError:
        raise UsageError(
            f"--step-on {text} is not understood: give an optimizer's class, forward, "
            "forward:CLASS, package.module:function, or :function"
        ) from None


def own_alias(options: argparse.Namespace) -> str | None:
    """Return this package's alias in a run of a program that has its own ``profiler_ext``."""
    if __name__.split(".")[0] != renaming.NAME:
        return None
    folder = _program(options).folder
    taken = renaming.is_shadowed([] if folder is None else [folder])
    return renaming.load_under_alias() if taken else None


def _program(options: argparse.Namespace) -> Program:
    is_module = options.module is not None
    words = [*(options.module or ()), *options.script]  # of a module's, argparse parts at a `--`
    if words[:1] == ["--"] and not is_module:
        del words[0]
    if not words:
        options.parser.error("name a script, or a module with -m")
    return Program(words[0], tuple(words[1:]), is_module)


def _request(options: argparse.Namespace) -> Request:
    is_repeated = options.every is not None or options.slow is not None
    return Request(
        program=_program(options),
        folder=options.output,
        skip=options.skip,
        steps=options.steps,
        step_on=options.step_on,
        force=options.force,
        recompile=options.recompile,
        lines=options.lines,
        shapes=options.shapes,
        memory=options.memory,
        values=options.values,
        source=options.source,
        stops=options.stop,
        repeats=Repeats(options.every, options.slow, options.keep) if is_repeated else None,
    )


def command(options: argparse.Namespace) -> int:
    """Run the program; returns its exit code."""
    from profiler_ext.run.profiled_program import run

    ending = run(_request(options), partial(_print_outcome, options), print_message)
    if ending.was_interrupted:  # its own traceback is printed already
        raise KeyboardInterrupt
    return ending.code


def _print_outcome(options: argparse.Namespace, outcome: Outcome) -> None:
    for remark in (*_printed(outcome.session, outcome.kept, options), *outcome.remarks):
        print_message(remark)


def _printed(
    session: Session | None, kept: SavedSessions, options: argparse.Namespace
) -> tuple[str, ...]:
    """Print a session; a failure becomes a remark, and the exit code stays the script's."""
    try:
        if session is not None and kept.series is not None:
            _print_series(session, kept.series)
        elif session is not None:
            print_session(session, kept.folder, options.output, verbose=options.verbose)
    except StdoutClosedError:
        return ()
    except OutputError as error:
        return (f"{error}; what was recorded is in {kept.folder}",)
    return ()


def print_session(session: Session, folder: Path, output: Path, *, verbose: bool = False) -> None:
    """Print where the time went, the files with details, and what to do next.

    Args:
        session: what was recorded.
        folder: where its files are.
        output: the folder of all ranks, as the user named it.
        verbose: describe each file.

    Raises:
        OutputError: Standard output cannot be written.
        StdoutClosedError: Its reader has closed it.
    """
    from profiler_ext.exporters.formats import run_outputs
    from profiler_ext.exporters.terminal.first_screen import next_steps, next_text

    if not _print_report(session):
        return
    if verbose:
        print_line(f"written to {folder}:")
        screen = console()
        for name, use in (file for each in run_outputs() for file in _outputs(each, folder)):
            screen.print(f"  {name:24} {use}", markup=False, no_wrap=True, overflow="ellipsis")
    else:
        texts = (_outputs_text(each, folder) for each in run_outputs())
        print_line(f"written to {folder}: {', '.join(texts)}")
    print_line(next_text(next_steps(session, output), console().width))


def _outputs(format: Format, folder: Path) -> list[tuple[str, str]]:
    """Return the files that a run wrote in a format, and their use."""
    return [each for each in format.run_outputs if (folder / each[0]).exists()]


def _outputs_text(format: Format, folder: Path) -> str:
    """Return what a run wrote in a format: a file's name, or how many tables."""
    if format.is_folder:
        return f"{len(_outputs(format, folder))} tables ({format.suffixes[0]})"
    return ", ".join(name for name, _ in format.run_outputs)


def _print_series(session: Session, series: Series) -> None:
    if not _print_report(session):
        return
    print_line(f"wrote {series.count} sessions and kept the last {len(series.folders)}:")
    for folder in series.folders:
        print_line(f"  profiler-ext report {folder}")


def _print_report(session: Session) -> bool:
    """Print where the time went; ranks other than the first print nothing."""
    from profiler_ext.exporters.terminal.first_screen import print_first_screen

    if session.recording.settings.rank != 0:
        return False
    print_first_screen(session, console())
    return True
