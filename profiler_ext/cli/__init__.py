"""The command line ``profiler-ext``; each command is a module of this package.

A command's module is imported when the command runs, and imports what it needs when it works.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from types import ModuleType

from profiler_ext.cli.common import FAILED, STDOUT_CLOSED, Parser, help_group, print_message
from profiler_ext.errors import ProfilerExtError, StdoutClosedError
from profiler_ext.isolation.failures import failure_detail
from profiler_ext.signals import cleaned_up_on_signal
from profiler_ext.version import VERSION

_GROUPS = {
    "record": ("run", "attach"),
    "read": ("report", "explain", "diff", "cluster", "annotate", "serve"),
    "write": ("export", "merge"),
    "maintain": ("doctor", "cache", "seq-table"),
}
_COMMANDS = tuple(name for names in _GROUPS.values() for name in names)
_LONG_LIVED = ("run", "serve", "cluster")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command."""
    words = sys.argv[1:] if arguments is None else arguments
    if words and words[0] in _LONG_LIVED:
        return _run(words, arguments)
    with _without_collector():
        return _run(words, arguments)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Keep Python from looking for cycles; records have none, and looking takes a third of it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _run(words: Sequence[str], arguments: Sequence[str] | None) -> int:
    try:
        options = _parsed(words)
        if (name := options.own_alias(options)) is not None:
            return int(import_module(f"{name}.cli").main(arguments))
        with nullcontext() if options.runs_program else cleaned_up_on_signal():
            code: int = options.command(options)
    except StdoutClosedError:
        return STDOUT_CLOSED
    except KeyboardInterrupt:  # it ends as Python ends, but no traceback is of use
        sys.excepthook = lambda *_: None
        raise
    except ProfilerExtError as error:
        print_message(f"[{error.slug}] {error}")
        return FAILED
    except OSError as error:
        print_message(f"cannot go on: {error}")
        return FAILED
    except UnicodeDecodeError as error:
        print_message(
            f"cannot go on: text is read as {error.encoding} here ({error}); set PYTHONUTF8=1"
        )
        return FAILED
    except Exception as error:
        print_message(
            f"{failure_detail(error)}; this is a fault of profiler-ext's own: please report it"
        )
        return FAILED
    return code


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    if not words or words[0] not in _COMMANDS:
        _main_parser().parse_args(words)
    command = _module(words[0])
    parser = Parser(prog=f"profiler-ext {words[0]}", description=_sentence(command.HELP))
    parser.set_defaults(own_alias=lambda _: None, runs_program=False)
    command.add_options(parser)
    options = parser.parse_args(words[1:])
    if getattr(options, "budget", None) is not None and options.format != "json":
        parser.error("--budget is of --format json, which alone is bounded")
    return options


def _module(name: str) -> ModuleType:
    return import_module(f"{__name__}.{name.replace('-', '_')}")


def _main_parser() -> Parser:
    """Return the parser of a line that begins with no command: it shows help or the error."""
    parser = Parser(
        prog="profiler-ext",
        usage="profiler-ext COMMAND [OPTION ...]",
        description="Lead every GPU microsecond of a compiled training step to the model's lines.",
    )
    parser.add_argument("COMMAND", choices=_COMMANDS, help=argparse.SUPPRESS)
    parser.add_argument("--version", action="version", version=f"profiler-ext {VERSION}")
    parser.show_examples(
        ("profile two training steps of a script as it is", "profiler-ext run train.py"),
        ("see where the time went", "profiler-ext report profile_out --by module"),
    )
    groups = (
        help_group(title, [(name, _module(name).HELP) for name in names])
        for title, names in _GROUPS.items()
    )
    more = "`profiler-ext COMMAND --help` tells the options of a command."
    parser.epilog = "\n\n".join((*groups, parser.epilog or "", more))
    return parser


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
