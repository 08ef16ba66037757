"""Owns the command line ``profiler-ext``; each command is a module of its own here."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from profiler_ext.cli import (
    annotate,
    attach,
    cache,
    diff,
    doctor,
    explain,
    export,
    merge,
    report,
    run,
    seq_table,
    serve,
)
from profiler_ext.cli.choices import FAILED, READER_GONE
from profiler_ext.cli.printing import tell, tell_usage, write
from profiler_ext.errors import ProfilerExtError, ReaderGoneError
from profiler_ext.isolation.failures import failure_detail
from profiler_ext.printable import printable_lines

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

_COMMANDS = {
    "run": run,
    "report": report,
    "explain": explain,
    "diff": diff,
    "annotate": annotate,
    "export": export,
    "merge": merge,
    "seq-table": seq_table,
    "attach": attach,
    "cache": cache,
    "serve": serve,
    "doctor": doctor,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: the command line without the program; by default the process's own.

    Returns:
        The exit code: 0, the script's own, 2 for an error, 3 for a script that never stepped,
        4 where a finding is above the limit of ``report --fail-above``.
    """
    try:
        options = _parser().parse_args(arguments)
        if options.command is run.command and (name := run.other_name(options)) is not None:
            return int(import_module(f"{name}.cli").main(arguments))
        code: int = options.command(options)
    except ReaderGoneError:
        return READER_GONE
    except ProfilerExtError as error:
        tell(str(error))
        return FAILED
    except OSError as error:
        tell(f"cannot go on: {error}")
        return FAILED
    except UnicodeDecodeError as error:
        tell(f"cannot go on: text is read as {error.encoding} here ({error}); set PYTHONUTF8=1")
        return FAILED
    except Exception as error:
        tell(f"{failure_detail(error)}; this is a fault of profiler-ext's own: please report it")
        return FAILED
    return code


class _Parser(argparse.ArgumentParser):
    """Prints as the commands do."""

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        if message:
            (tell_usage if file is sys.stderr else write)(printable_lines(message))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="profiler-ext",
        description="Lead every GPU microsecond of a compiled training step to the model's lines.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, command in _COMMANDS.items():
        command.add_options(commands.add_parser(name, help=command.HELP))
    return parser
