"""Owns how the places of launches are written on the page: as numbers into its pools."""

from __future__ import annotations

from collections.abc import Mapping

from profiler_ext.exporters.html.pools import ABSENT, Pool, Pools
from profiler_ext.printable import printable
from profiler_ext.records import Frame, Phase, Place


def place_row(place: Place, pools: Pools, paths: Mapping[str, int]) -> tuple[int | str, ...]:
    """Return a place as numbers: line, module, op, phase, gap, stack; and its node.

    Args:
        place: the place.
        pools: what the numbers point into.
        paths: the number of each source file.
    """
    module = None if place.module is None else (place.module, place.module_class or "")
    callers = tuple(_callers(place, pools.lines, paths))
    return (
        _line_code(place.file, place.line, pools.lines, paths),
        pools.modules.code(module),
        pools.ops.code(place.aten_op),
        list(Phase).index(place.phase),
        pools.gaps.code(place.gap),
        pools.stacks.code(callers),
        printable(place.node or ""),
    )


def _callers(place: Place, lines: Pool, paths: Mapping[str, int]) -> list[int]:
    def is_own(frame: Frame) -> bool:
        return (frame.file, frame.line) == (place.file, place.line)

    outer = (_line_code(f.file, f.line, lines, paths) for f in place.stack if not is_own(f))
    return [number for number in dict.fromkeys(outer) if number != ABSENT]


def _line_code(file: str | None, line: int | None, lines: Pool, paths: Mapping[str, int]) -> int:
    known = file is not None and line is not None and file in paths
    return lines.code((paths[file], line)) if known and file is not None else ABSENT
