"""Owns how a command line is read, and how help is laid out: groups, defaults, examples."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from profiler_ext.cli.printing import print_usage, write
from profiler_ext.printable import printable_lines

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

_WIDTH = 80
"""Help is no wider, however wide the terminal is."""
_NAMES_WIDTH = 24


class Parser(argparse.ArgumentParser):
    """Prints as the commands do, and knows where its help is."""

    def __init__(self, **options: Any) -> None:
        """Take what ``argparse.ArgumentParser`` takes."""
        self._width = min(_WIDTH, shutil.get_terminal_size().columns)
        options["formatter_class"] = partial(
            argparse.RawDescriptionHelpFormatter, width=self._width, max_help_position=_NAMES_WIDTH
        )
        super().__init__(**options)

    def format_help(self) -> str:
        """Return the help; the examples stand as they are, the description is filled."""
        self.description = textwrap.fill(self.description or "", self._width)
        return super().format_help()

    def show_examples(self, *examples: tuple[str, str]) -> None:
        """End the help with examples.

        Args:
            *examples: what each does, and its command line.
        """
        lines = (f"  # {what}\n  {command}" for what, command in examples)
        self.epilog = "\n".join(("examples:", *lines))

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        if message:
            (print_usage if file is sys.stderr else write)(printable_lines(message))


def help_group(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """Return a group of a help text.

    Args:
        title: what heads it.
        rows: each a name, and what it is.
    """
    return "\n".join((f"{title}:", *(f"  {name:<12}{words}" for name, words in rows)))
