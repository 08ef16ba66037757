"""Owns which of a CPU event's arguments are drawn, and how: short texts and numbers."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import msgspec

from profiler_ext.exporters.perfetto.packets import Argument
from profiler_ext.exporters.perfetto.raw_arguments import raw_arguments
from profiler_ext.records import Trace

_MOST_LETTERS = 300
# Columns have the ids already; the others number things within the profiler.
_LEFT_OUT = frozenset(
    (
        *("External id", "correlation", "Sequence number", "Fwd thread id", "bytes"),
        *("Record function id", "Ev Idx", "cbid", "stack", "Input Strides"),
        *("Python id", "Python parent id", "Python module id"),
    )
)
_OUR_OWN = "compile."
_NOT_A_WORD = re.compile(r"\W+")


class HostArguments:
    """Answers what the profiler recorded with a CPU event, beside its ids."""

    def __init__(self, trace: Trace) -> None:
        self._raw = trace.raw
        self._positions: list[int] = trace.events.position.tolist()

    def of(self, row: int) -> dict[str, Argument]:
        """Return an event's further arguments; a long text is cut.

        Args:
            row: row of ``Events``.

        Returns:
            Name to value; ``Input Dims`` is called ``input_dims``.
        """
        raw = self._raw[self._positions[row]]
        return {
            _spelled(key): _argument(value)
            for key, value in raw_arguments(raw).items()
            if key not in _LEFT_OUT and not key.startswith(_OUR_OWN) and _says_something(value)
        }


@cache
def _spelled(key: str) -> str:
    return _NOT_A_WORD.sub("_", key.lower()).strip("_")


def _says_something(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_says_something, value))
    return value is not None and value not in ("", {})


def _argument(value: Any) -> Argument:
    if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
        return value
    if isinstance(value, float):
        return value
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS - 1]}…"
