"""How two texts of a gold file are compared for a reader."""

from __future__ import annotations

import difflib

from tests.gold.sections import TIMES

CONTEXT = 2


def split_times(text: str) -> tuple[str, str]:
    """Return a text without the times of single launches, and these."""
    before, head, times = text.partition(f"\n[{TIMES}: ")
    return before, head + times


def difference(before: str, after: str, name: str) -> list[str]:
    """Return a unified difference."""
    lines = before.splitlines(), after.splitlines()
    names = f"{name}: gold", f"{name}: now"
    return list(difflib.unified_diff(*lines, *names, lineterm="", n=CONTEXT))
