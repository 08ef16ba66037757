"""Owns the command line ``profiler-ext``; each command is a module of its own here."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from profiler_ext.cli import annotate, attach, cache, doctor, export, merge, report, run, seq_table
from profiler_ext.cli.choices import FAILED
from profiler_ext.errors import ProfilerExtError

_COMMANDS = {
    "run": run,
    "report": report,
    "annotate": annotate,
    "export": export,
    "merge": merge,
    "seq-table": seq_table,
    "attach": attach,
    "cache": cache,
    "doctor": doctor,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: the command line without the program; by default the process's own.

    Returns:
        The exit code: 0, the script's own, 2 for an error, 3 for a script that never stepped.
    """
    options = _parser().parse_args(arguments)
    try:
        code: int = options.command(options)
    except ProfilerExtError as error:
        print(f"profiler-ext: {error}", file=sys.stderr)
        return FAILED
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="profiler-ext",
        description="Lead every GPU microsecond of a compiled training step to the model's lines.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, command in _COMMANDS.items():
        command.add_options(commands.add_parser(name, help=command.HELP))
    return parser
