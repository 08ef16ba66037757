"""``profiler-ext completion``: prints a script that completes commands in a shell."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from profiler_ext.cli.common import Parser, write

HELP = "print a completion script for bash, zsh or fish"

_SHELLS = ("bash", "zsh", "fish")
_PATHS = ("DIR", "DIR|URL", "BASE HEAD", "FILE", "PATH", "SCRIPT", "TRACE")


def add_options(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument("shell", choices=_SHELLS, metavar="SHELL", help="%(choices)s")
    parser.show_examples(
        ("bash: source it in ~/.bashrc", "profiler-ext completion bash > ~/.profiler-ext.bash"),
        ("zsh, in a folder of $fpath", "profiler-ext completion zsh > ~/.zfunc/_profiler-ext"),
        ("fish", "profiler-ext completion fish > ~/.config/fish/completions/profiler-ext.fish"),
    )
    parser.set_defaults(command=_completion)


def _completion(options: argparse.Namespace) -> int:
    from profiler_ext.exporters.extras import COMPLETION

    COMPLETION.require("profiler-ext completion")
    import shtab

    from profiler_ext.cli import whole_parser

    parser = whole_parser()
    for action in _actions(parser):
        if action.metavar in _PATHS:
            vars(action)["complete"] = shtab.FILE  # which shtab looks for
    write(shtab.complete(parser, shell=options.shell).rstrip("\n") + "\n")
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments of a parser, and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _actions(each)
