"""How a test reads an analysis: a launch as a row, its shares beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from profiler_ext.records.analysis import Analysis, BreakdownRow
from tests.handmade import Piece, pieces


def rows(analysis: Analysis, *columns: str) -> list[tuple[Any, ...]]:
    """Return the launches as rows of the named columns; masked is ``None``."""
    table = analysis.launches
    return [tuple(_cell(getattr(table, c), row) for c in columns) for row in range(len(table))]


def shares(analysis: Analysis) -> list[tuple[int, str | None, int]]:
    """Return launch, node (or op) and time of every share."""
    found = analysis.shares
    places = [analysis.places[at] for at in found.place]
    labels = [place.node or place.aten_op for place in places]
    return list(zip(found.launch.tolist(), labels, found.duration_ns.tolist(), strict=True))


def lines(analysis: Analysis) -> list[tuple[str, tuple[int | None, ...]]]:
    """Return each launch's name with the lines of its shares."""
    found: list[list[int | None]] = [[] for _ in range(len(analysis.launches))]
    for launch, place in zip(analysis.shares.launch, analysis.shares.place, strict=True):
        found[launch].append(analysis.places[place].line)
    names = (name for (name,) in rows(analysis, "name"))
    return [(name, tuple(own)) for name, own in zip(names, found, strict=True)]


def assert_conserves(analysis: Analysis) -> None:
    """Check that no time is lost: shares add up to launches, the breakdown to the steps."""
    totals = np.zeros(len(analysis.launches), dtype=np.int64)
    np.add.at(totals, analysis.shares.launch, analysis.shares.duration_ns)
    assert totals.tolist() == analysis.launches.duration_ns.tolist()
    assert (np.diff(analysis.shares.launch) >= 0).all()
    for step in analysis.steps:
        for device in {line.device for line in analysis.breakdown}:
            own = [
                line.duration_ns
                for line in analysis.breakdown
                if (line.step, line.device) == (step.number, device)
            ]
            assert sum(own) == step.wall_ns
    _assert_no_piece_overlaps(analysis)
    for device in {line.device for line in analysis.breakdown}:
        assert idle_ns(pieces(analysis), device) == idle_ns(
            [line for line in analysis.breakdown if line.scope == "idle"], device
        )


def idle_ns(rows: Sequence[Piece | BreakdownRow], device: int) -> list[tuple[int, int]]:
    """Return the time of a device that some rows have in each step."""
    steps = sorted({row.step for row in rows if row.device == device and row.duration_ns})
    return [
        (step, sum(r.duration_ns for r in rows if (r.step, r.device) == (step, device)))
        for step in steps
    ]


def _assert_no_piece_overlaps(analysis: Analysis) -> None:
    idle = analysis.idle
    assert (idle.duration_ns > 0).all()
    for device in np.unique(idle.device).tolist():
        own = idle.device == device
        ends = (idle.start_ns + idle.duration_ns)[own]
        assert (idle.start_ns[own][1:] >= ends[:-1]).all()


def _cell(column: Any, row: int) -> Any:
    value = column[row]
    if value is np.ma.masked:
        return None
    return value if isinstance(value, str) else int(value)
