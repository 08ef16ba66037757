"""Owns how torch's text of a failed guard is read: whose it was, and what made it necessary."""

from __future__ import annotations

import re

from profiler_ext.records import Frame, Recompilation

_OWNER = re.compile(r"^(?P<of>!?[0-9/]+): ")
_STACK = "\nUser stack trace:\n"
_PLACE = re.compile(r'^\s*File "(?P<file>.*)", line (?P<line>\d+), in (?P<function>.*)$')


def recompilation(reason_text: str) -> Recompilation:
    """Return what torch says of code that did not serve a call.

    Args:
        told: ``0/0: tensor 'x' size mismatch at index 0. expected 4, actual 8``, and from torch
            2.13 on the lines that made the guard necessary.

    Source: ``torch/_dynamo/guards.py``, ``get_guard_fail_reason_helper``.
    """
    text, _, stack = reason_text.partition(_STACK)
    owner = _OWNER.match(text)
    of, guard = (owner["of"], text[owner.end() :]) if owner else ("", text)
    return Recompilation(of, guard, _frames(stack.splitlines()))


def _frames(lines: list[str]) -> tuple[Frame, ...]:
    """A line of source follows that of its place, further in."""
    frames: list[Frame] = []
    for line in lines:
        if place := _PLACE.match(line):
            frames.append(Frame(place["file"], int(place["line"]), place["function"], None))
        elif frames and frames[-1].code is None:
            last = frames.pop()
            frames.append(Frame(last.file, last.line, last.function, line.strip()))
    return tuple(frames)
