"""Owns the progress line of ``run``: on the terminal only, and never in the script's output."""

from __future__ import annotations

import io
import sys


class Progress:
    """One line on standard error that is replaced at each stage, and cleared at the end."""

    def __init__(self) -> None:
        """Show nothing yet; nothing is ever shown where standard error is no terminal."""
        from rich.console import Console

        self._console = Console(file=sys.stderr or io.StringIO(), highlight=False)
        self._shown = False

    def say(self, stage: str) -> None:
        """Show a stage."""
        if self._console.is_terminal:
            self.done()
            self._console.print(f"[dim]profiler-ext: {stage}[/dim]", end="\r", no_wrap=True)
            self._shown = True

    def done(self) -> None:
        """Clear the line."""
        if self._shown:
            self._console.print(" " * (self._console.width - 1), end="\r")
            self._shown = False
