"""The command line ``profiler-ext``; each command is a module of this package.

A command's module is imported when the command runs, and imports what it needs when it works.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from importlib import import_module
from keyword import iskeyword
from types import ModuleType

from profiler_ext.cli.common import FAILED, STDOUT_CLOSED, Parser, help_group, print_message
from profiler_ext.collector import without_collector
from profiler_ext.errors import ProfilerExtError, StdoutClosedError
from profiler_ext.isolation.failures import failure_detail
from profiler_ext.signals import cleaned_up_on_signal
from profiler_ext.version import VERSION

_GROUPS = {
    "record": ("run", "attach", "try", "inside"),
    "read": ("open", "report", "explain", "diff", "cluster", "annotate", "serve"),
    "write": ("export", "merge"),
    "maintain": ("doctor", "cache", "seq-table", "completion", "skill"),
}
_COMMANDS = tuple(name for names in _GROUPS.values() for name in names)
_LONG_LIVED = ("run", "serve", "cluster", "try", "inside")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command."""
    words = sys.argv[1:] if arguments is None else arguments
    if words and words[0] in _LONG_LIVED:
        return _run(words, arguments)
    with without_collector():
        return _run(words, arguments)


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
        print_message(f"[{error.slug}] {error}" + (f" ({error.page})" if error.page else ""))
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
        print_message(f"{failure_detail(error)}; this is a bug of profiler-ext: please report it")
        return FAILED
    return code


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    if not words or words[0] not in _COMMANDS:
        _main_parser().parse_args(words)
    parser = _with_options(Parser(prog=f"profiler-ext {words[0]}"), words[0])
    options: argparse.Namespace = parser.parse_args(words[1:])
    if getattr(options, "budget", None) is not None and options.format != "json":
        parser.error("--budget needs --format json")
    return options


def _with_options(parser: Parser, name: str) -> Parser:
    """Add a command's description and options to its parser."""
    command = _module(name)
    parser.description = f"{command.HELP[0].upper()}{command.HELP[1:]}."
    parser.set_defaults(own_alias=lambda _: None, runs_program=False)
    command.add_options(parser)
    return parser


def _module(name: str) -> ModuleType:
    # A module of Python's keyword has an underscore after its name
    own_name = f"{name}_" if iskeyword(name) else name.replace("-", "_")
    return import_module(f"{__name__}.{own_name}")


def _main_parser() -> Parser:
    """Return the parser of a line that begins with no command: it shows help or the error."""
    parser = _bare_parser()
    parser.add_argument("COMMAND", choices=_COMMANDS, help=argparse.SUPPRESS)
    parser.show_examples(
        ("profile two training steps of an unmodified script", "profiler-ext run train.py"),
        ("see where the time went", "profiler-ext open"),
        ("in the terminal", "profiler-ext report --by module"),
    )
    groups = (
        help_group(title, [(name, _module(name).HELP) for name in names])
        for title, names in _GROUPS.items()
    )
    more = "`profiler-ext COMMAND --help` lists the options of a command."
    parser.epilog = "\n\n".join((*groups, parser.epilog or "", more))
    return parser


def _bare_parser() -> Parser:
    parser = Parser(
        prog="profiler-ext",
        usage="profiler-ext COMMAND [OPTION ...]",
        description="Attribute every GPU microsecond of a training step to the model's lines.",
    )
    parser.add_argument("--version", action="version", version=f"profiler-ext {VERSION}")
    return parser


def whole_parser() -> Parser:
    """Return one parser of all commands with all options, for completion in shells."""
    parser = _bare_parser()
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)
    for name in _COMMANDS:
        _with_options(commands.add_parser(name, help=_module(name).HELP), name)
    return parser
