"""A trace file split into its top-level keys, its events' positions, and columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import msgspec
import numpy as np

from profiler_ext.kineto import checking, source
from profiler_ext.records.events import Events, Ints

EVENTS_KEY = "traceEvents"
EXTENSION_KEY = "profilerExt"

# What stands far apart is read one by one.
_EVENTS_AT_ONCE, _FAR_BYTES = 1_000, 8 << 10
_OPENS = ord("{")

Header = dict[str, msgspec.Raw]


class NotKinetoError(ValueError):
    """The file is JSON of something else; the message says what."""


@dataclass(frozen=True, slots=True)
class FileEvents:
    """The events of a file, each a slice of its text."""

    text: source.Text
    starts: Ints
    ends: Ints

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, position: int) -> bytes:
        return self.text[self.starts.item(position) : self.ends.item(position)]

    def at(self, positions: Ints) -> Iterator[bytes]:
        """Return the JSON of several events, much quicker than one by one."""
        firsts = range(0, len(positions), _EVENTS_AT_ONCE)
        some = (positions[first : first + _EVENTS_AT_ONCE] for first in firsts)
        return chain.from_iterable(map(self._some, some))

    def _some(self, positions: Ints) -> list[bytes]:
        starts, ends = self.starts[positions], self.ends[positions]
        begin, end = int(starts.min()), int(ends.max())
        if end - begin > _FAR_BYTES * len(positions):
            return [self[position] for position in positions.tolist()]
        text = self.text[begin:end]
        bounds = zip((starts - begin).tolist(), (ends - begin).tolist(), strict=True)
        return [text[start:end] for start, end in bounds]


class Document(NamedTuple):
    """A trace file, split."""

    header: Header  # the top-level keys but ``traceEvents``, in order
    raw: FileEvents  # the events, unchanged
    # Makes the complete events columns, and counts negative durations
    columns: Callable[[], tuple[Events, int]]


def check_header(header: Header) -> None:
    """Raise unless the top-level keys keep within the limits."""
    for key, value in header.items():
        check = checking.check_records if key == EXTENSION_KEY else checking.check_value
        check(bytes(value))


def located(text: bytes, first: int, events: Sequence[msgspec.Raw]) -> tuple[Ints, Ints]:
    """Find events in the text that they were decoded from; raises NotKinetoError."""
    starts, end = [], first
    # Between two objects stand only blanks and a comma, so the next brace begins an event.
    for at, event in enumerate(events):
        if memoryview(event)[0] != _OPENS:
            raise NotKinetoError(f'event {at} in "{EVENTS_KEY}" is no object')
        starts.append(start := text.index(_OPENS, end))
        end = start + len(event)
    begins = np.array(starts, dtype=np.int64)
    return begins, begins + np.fromiter(map(len, events), np.int64, len(events))
