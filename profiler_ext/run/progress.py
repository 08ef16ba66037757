"""Owns the progress line of ``run``: on the terminal only, and never in the script's output."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profiler_ext.exporters.rich_parts import Console


class Progress:
    """One line on standard error that is replaced at each stage, and cleared at the end."""

    def __init__(self) -> None:
        """Show nothing yet; nothing is ever shown where standard error is no terminal."""
        self._made: Console | None = None
        self._is_terminal = False
        with suppress(ValueError):  # it is closed
            self._is_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._shown = False

    @property
    def _console(self) -> Console:
        if self._made is None:
            from profiler_ext.exporters.rich_parts import Console

            self._made = Console(file=sys.stderr, highlight=False)
        return self._made

    def say(self, stage: str) -> None:
        """Show a stage."""
        if self._is_terminal:
            self.done()
            self._console.print(f"[dim]profiler-ext: {stage}[/dim]", end="\r", no_wrap=True)
            self._shown = True

    def done(self) -> None:
        """Clear the line."""
        if self._shown:
            self._console.print(" " * (self._console.width - 1), end="\r")
            self._shown = False
