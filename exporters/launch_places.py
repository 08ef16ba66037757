"""Owns what exports say of a launch's places: largest part first, in short words."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from profiler_ext.records import Frame, Place

THE_MODEL = "(model)"


def distinct(places: Iterable[Place], text_of: Callable[[Place], str | None]) -> list[str]:
    """Return what ``say`` says of places, each text once, nothing for ``None``.

    Args:
        places: places, in the order in which they are to be said.
        say: what to say of one.
    """
    return list(dict.fromkeys(text for place in places if (text := text_of(place)) is not None))


def node_text(place: Place) -> str:
    """Return the FX node, the ATen op or the gap that a place stands for."""
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
    """Return a place's module path; the model itself has none and gets a word."""
    return THE_MODEL if place.module == "" else place.module


def stack_text(place: Place) -> str | None:
    """Return a place's stack as Python and ``torch.fx`` print one."""
    return "".join(map(_frame_text, place.stack)) or None


def _frame_text(frame: Frame) -> str:
    code = f"    {frame.code}\n" if frame.code else ""
    return f'  File "{frame.file}", line {frame.line}, in {frame.function}\n{code}'
