"""Owns what the slice of a collective says of it: how much was exposed, and for whom it waited."""

from __future__ import annotations

import numpy as np

from profiler_ext.exporters.perfetto.own_arguments import IntArgument
from profiler_ext.records import Analysis, Ints, MaskedInts

CollectiveNames = dict[str, str | None]


def collective_names(analysis: Analysis) -> dict[int, CollectiveNames]:
    """Return what collectives are called and whose they are, by the rows of their launches.

    Args:
        analysis: what attribution found.
    """
    collectives = analysis.communication
    return {
        launch: {
            "collective": collectives.collective[row] or None,
            "process_group": collectives.process_group[row] or None,
        }
        for row, launch in enumerate(collectives.launch.tolist())
    }


def communication_times(analysis: Analysis) -> list[IntArgument]:
    """Return the times of collectives, of all launches; those that do not communicate have none.

    Args:
        analysis: what attribution found.
    """
    collectives, launches = analysis.communication, analysis.launches
    if not len(collectives.launch):
        return []
    columns = {
        "exposed_ns": collectives.exposed_ns,
        "overlapped_ns": launches.duration_ns[collectives.launch] - collectives.exposed_ns,
        "waiting_ns": collectives.waiting_ns,
        "late_ns": collectives.late_ns,
    }
    return [
        IntArgument(name, _scatter(column, collectives.launch, len(launches)))
        for name, column in columns.items()
    ]


def _scatter(column: Ints | MaskedInts, launch: Ints, launches: int) -> MaskedInts:
    values, absent = np.zeros(launches, np.int64), np.ones(launches, np.bool_)
    values[launch], absent[launch] = np.ma.getdata(column), np.ma.getmaskarray(column)
    return np.ma.MaskedArray(values, absent)
