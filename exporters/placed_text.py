"""Owns a sentence with a line of source in it: as text, and in parts for a page to lead there."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_ext.printable import printable


@dataclass(frozen=True, slots=True)
class LineText:
    """A sentence that names a line of source, or none.

    Attributes:
        before: what stands before the line.
        line: the line as ``model.py:12``; empty where none is known.
        after: what stands after it.
    """

    before: str
    line: str = ""
    after: str = ""

    @property
    def text(self) -> str:
        """All of it; no character of it steers a terminal."""
        return printable(f"{self.before}{self.line}{self.after}")
