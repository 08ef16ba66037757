"""Owns the table of model FLOPs utilisation: one row for each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Unpack

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray

from profiler_ext.exporters.tables.arrays import FLOAT, TEXT, INT, Dtype, frame, gather, repeated
from profiler_ext.exporters.tables.selection import Filters, Selection
from profiler_ext.records import Analysis
from profiler_ext.rooflines.peaks import PEAKS, Peak
from profiler_ext.rooflines.utilisation import Utilisation, utilisation_by_step

_COLUMNS: Mapping[str, tuple[Dtype, Callable[[Utilisation], Any]]] = {
    "wall_ns": (INT, lambda by_step: by_step.wall_ns),
    "est_flops": (INT, lambda by_step: by_step.flops),
    "unit": (TEXT, lambda by_step: by_step.by_unit[0][0]),
    "mfu": (FLOAT, lambda by_step: by_step.mfu),
    "known_fraction": (FLOAT, lambda by_step: by_step.known_fraction),
    "counted_fraction": (FLOAT, lambda by_step: by_step.counted_fraction),
}


def utilisation(
    analysis: Analysis, *, peaks: Mapping[str, Peak] = PEAKS, **filters: Unpack[Filters]
) -> pd.DataFrame:
    """Return the model FLOPs utilisation (MFU) of each step; it has no filter by phase or scope.

    Args:
        analysis: what attribution found.
        peaks: what devices can do at best, by the words of their names.
        **filters: the step or rank.

    Returns:
        ``rank``, ``step``, the wall time over all devices, the operations of the model, the unit
        that did most of them, ``mfu``, and which parts of it are known; a step of which it is not
        known has its number alone.

    Raises:
        UsageError: There is no such step.
    """
    selection = Selection(**filters)
    if selection.has_rank_of(analysis):
        selection.require_step(analysis)
    numbers = dict.fromkeys(each.number for each in analysis.steps)
    chosen = [number for number in numbers if selection.step in (None, number)]
    chosen = chosen if selection.has_rank_of(analysis) else []
    by_step = utilisation_by_step(analysis, chosen, peaks)
    every = np.arange(len(chosen))
    columns: dict[str, ExtensionArray] = {
        "rank": repeated(analysis.recording.settings.rank, len(chosen), INT),
        "step": gather(chosen, every, INT),
    }
    for name, (dtype, value_of) in _COLUMNS.items():
        values = [None if each is None else value_of(each) for each in by_step]
        columns[name] = gather(values, every, dtype)
    return frame(columns)
