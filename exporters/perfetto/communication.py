"""Owns what the slice of a collective says of it: how much was exposed, and for whom it waited."""

from __future__ import annotations

import numpy as np

from profiler_ext.exporters.perfetto.own_arguments import Whole
from profiler_ext.records import Analysis, Ints, MaskedInts

Words = dict[str, str | None]


def communication_words(analysis: Analysis) -> dict[int, Words]:
    """Return what collectives are called and whose they are, by the rows of their launches.

    Args:
        analysis: what attribution found.
    """
    found = analysis.communication
    return {
        launch: {
            "collective": found.collective[row] or None,
            "process_group": found.process_group[row] or None,
        }
        for row, launch in enumerate(found.launch.tolist())
    }


def communication_times(analysis: Analysis) -> list[Whole]:
    """Return the times of collectives, of all launches; those that do not communicate have none.

    Args:
        analysis: what attribution found.
    """
    found, launches = analysis.communication, analysis.launches
    if not len(found.launch):
        return []
    columns = {
        "exposed_ns": found.exposed_ns,
        "overlapped_ns": launches.duration_ns[found.launch] - found.exposed_ns,
        "waiting_ns": found.waiting_ns,
        "late_ns": found.late_ns,
    }
    return [
        Whole(name, _of_launches(column, found.launch, len(launches)))
        for name, column in columns.items()
    ]


def _of_launches(column: Ints | MaskedInts, launch: Ints, launches: int) -> MaskedInts:
    values, absent = np.zeros(launches, np.int64), np.ones(launches, np.bool_)
    values[launch], absent[launch] = np.ma.getdata(column), np.ma.getmaskarray(column)
    return np.ma.MaskedArray(values, absent)
