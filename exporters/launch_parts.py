"""The parts of each launch, largest first, and their names in traces."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

import numpy as np

from profiler_ext.records import events, lineage, share_sums
from profiler_ext.records.analysis import Analysis, Place

THE_MODEL = "(model)"  # the model itself, whose path is empty


class PartColumns:
    """The parts of all launches, the largest of each launch first."""

    def __init__(self, analysis: Analysis) -> None:
        """Sort the shares."""
        shares = analysis.shares
        order = np.lexsort((-shares.duration_ns, shares.launch))
        self.place: events.Codes = shares.place[order]
        self.duration_ns: events.Ints = shares.duration_ns[order]
        self.firsts: events.Ints = share_sums.share_offsets(analysis)

    def of(self, launch: int) -> list[int]:
        """Return the places of one launch's parts."""
        places: list[int] = self.place[self.firsts[launch] : self.firsts[launch + 1]].tolist()
        return places

    def durations_ns(self, launch: int) -> list[int]:
        """Return the times of one launch's parts."""
        first, end = self.firsts[launch], self.firsts[launch + 1]
        times: list[int] = self.duration_ns[first:end].tolist()
        return times

    def keys(self) -> list[bytes]:
        """Return a key for each launch, equal for launches with the same places."""
        whole, size = self.place.tobytes(), self.place.itemsize
        return [whole[first:end] for first, end in pairwise((self.firsts * size).tolist())]


def distinct(places: Iterable[Place], text_of: Callable[[Place], str | None]) -> list[str]:
    """Return the distinct texts of places, without ``None``."""
    return list(dict.fromkeys(text for place in places if (text := text_of(place)) is not None))


def node_text(place: Place) -> str:
    """Return a place's FX node, ATen op or gap."""
    return place.node or place.aten_op or place.gap or "unknown"


def op_text(place: Place) -> str | None:
    """Return a place's op without its overload: ``aten.addmm``."""
    op = place.aten_op
    return op if op is None or "::" in op else ".".join(op.split(".")[:2])


def position_text(place: Place) -> str | None:
    """Return a place's file name and line: ``model.py:12``."""
    if place.file is None or place.line is None:
        return None
    return f"{place.file.replace(chr(92), '/').rpartition('/')[2]}:{place.line}"


def line_text(place: Place) -> str | None:
    """Return a place's line with its code: ``model.py:12  h = self.up(x)``."""
    position = position_text(place)
    return position if position is None or not place.code else f"{position}  {place.code}"


def module_text(place: Place) -> str | None:
    """Return a place's module path, ``(model)`` for the model itself."""
    return THE_MODEL if place.module == "" else place.module


def stack_text(place: Place) -> str | None:
    """Return a place's stack as Python and ``torch.fx`` print it."""
    return "".join(map(_frame_text, place.stack)) or None


def _frame_text(frame: lineage.Frame) -> str:
    code = f"    {frame.code}\n" if frame.code else ""
    return f'  File "{frame.file}", line {frame.line}, in {frame.function}\n{code}'
