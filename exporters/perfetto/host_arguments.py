"""Owns which of a CPU event's arguments are drawn, and how: short texts and numbers."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from profiler_ext.exporters.perfetto.raw_arguments import raw_arguments, reader
from profiler_ext.exporters.perfetto.texts import Argument
from profiler_ext.kineto.recording import as_written
from profiler_ext.records import Ints, Trace

_MAX_CHARS = 300
# Columns have the ids already; the others number things within the profiler.
_IDS = ("External id", "correlation", "Sequence number", "Fwd thread id", "bytes")
_NUMBERS = ("Record function id", "Ev Idx", "cbid", "Python id", "Python parent id")
_LEFT_OUT = frozenset((*_IDS, *_NUMBERS, "Python module id", "stack", "Input Strides"))
_OWN_PREFIX = "compile."
_NOT_A_WORD = re.compile(r"\W+")


class _Event(msgspec.Struct, gc=False):
    args: dict[str, msgspec.Raw] = {}


_DECODE = msgspec.json.Decoder(_Event).decode
# Most events say no more than this.
_INPUTS = {"Input Dims": "dims", "Input type": "types", "Concrete Inputs": "concrete"}
_READ_USUAL = reader({**_INPUTS, "Input Strides": "strides"}, (*_IDS, *_NUMBERS), no_others=True)


class HostArguments:
    """Answers what the profiler recorded with CPU events, beside their ids."""

    def __init__(self, trace: Trace) -> None:
        """Take the events."""
        self._trace = trace
        self._kept: dict[tuple[str, ...], tuple[str, ...]] = {}

    def of(self, row: int) -> dict[str, Argument]:
        """Return an event's further arguments; a long text is cut.

        Args:
            row: row of ``Events``.

        Returns:
            Name to value; ``Input Dims`` is called ``input_dims``.
        """
        decoded = raw_arguments(self._trace.raw[int(self._trace.events.position[row])])
        return {
            _argument_name(key): _argument(decoded[key])
            for key in self._kept_of(decoded)
            if _is_nonempty(decoded[key])
        }

    def keys(self, rows: Ints) -> Iterator[Hashable]:
        """Return for events what only those share that have the same further arguments.

        Args:
            rows: rows of ``Events``.
        """
        for raw in as_written(self._trace.raw).at(self._trace.events.position[rows]):
            try:
                usual = _READ_USUAL(raw).args
            except msgspec.DecodeError:
                yield self._key_of_unusual(raw)
                continue
            # It stays text, most of which is known.
            says = usual.dims or usual.types or usual.concrete
            yield (bytes(usual.dims), bytes(usual.types), bytes(usual.concrete)) if says else None

    def _key_of_unusual(self, raw: bytes) -> Hashable:
        try:
            decoded = _DECODE(raw).args
        except msgspec.DecodeError:
            return raw
        kept = self._kept_of(decoded)
        return (kept, *[bytes(decoded[key]) for key in kept]) if kept else None

    def _kept_of(self, decoded: Mapping[str, object]) -> tuple[str, ...]:
        """Return which of an event's arguments may be said; few events have others than most."""
        names = tuple(decoded)
        kept = self._kept.get(names)
        if kept is None:
            some = (name for name in names if name not in _LEFT_OUT)
            kept = tuple(name for name in some if not name.startswith(_OWN_PREFIX))
            self._kept[names] = kept
        return kept


@cache
def _argument_name(key: str) -> str:
    return _NOT_A_WORD.sub("_", key.lower()).strip("_")


def _is_nonempty(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_is_nonempty, value))
    return value is not None and value not in ("", {})


def _argument(value: Any) -> Argument:
    if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
        return value
    if isinstance(value, float):
        return value
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _MAX_CHARS else f"{text[: _MAX_CHARS - 1]}…"
