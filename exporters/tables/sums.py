"""Owns the sums over the profiled steps: by line, module, op, phase, link and mechanism.

A gap is a row as well, so every table's total is the measured device time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Unpack

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray

from profiler_ext.exporters.tables.achieved import roofline_columns_by_key
from profiler_ext.exporters.tables.arrays import INT, frame, ratio, repeated, whole
from profiler_ext.exporters.tables.keys import (
    Keys,
    line_keys,
    module_keys,
    phase_keys,
    text_keys,
)
from profiler_ext.exporters.tables.selection import PHASES, Filters, Rows, Selection
from profiler_ext.records import Analysis, Ints
from profiler_ext.rooflines.peaks import PEAKS, Peak

NO_COLUMNS: Mapping[str, ExtensionArray] = MappingProxyType({})


def by_line(
    analysis: Analysis,
    view: str = "model",
    *,
    peaks: Mapping[str, Peak] = PEAKS,
    **filters: Unpack[Filters],
) -> pd.DataFrame:
    """Return device time by source line, largest first.

    Args:
        analysis: what attribution found.
        view: ``model`` for the innermost line of the model, a modelling library's included;
            ``user`` for the innermost line under the user's own roots.
        **filters: the step, rank, phase or scope to sum over.
        peaks: what devices can do at best, by the words of their names.

    Returns:
        ``file``, ``line``, ``function``, ``code``, ``gap``, the sums and the rooflines; ``gap``
        says why a row has no line.

    Raises:
        UsageError: There is no such view, step or phase.
    """
    return with_rooflines(analysis, line_keys(analysis, view), Selection(**filters), peaks)


def by_module(
    analysis: Analysis,
    depth: int | None = None,
    *,
    peaks: Mapping[str, Peak] = PEAKS,
    **filters: Unpack[Filters],
) -> pd.DataFrame:
    """Return device time by module, largest first; a module's time excludes its children's.

    Args:
        analysis: what attribution found.
        depth: cut each path to so many parts, so that a module's time includes the modules
            below it: at 2, ``layers.7.mlp.up`` counts for ``layers.7``; 0 is the whole model.
        **filters: the step, rank, phase or scope to sum over.
        peaks: what devices can do at best, by the words of their names.

    Returns:
        ``module``, ``module_class``, ``gap``, the sums and the rooflines; ``gap`` says why a row
        has no module.

    Raises:
        UsageError: The depth is negative, or there is no such step or phase.
    """
    return with_rooflines(analysis, module_keys(analysis, depth), Selection(**filters), peaks)


def by_op(analysis: Analysis, **filters: Unpack[Filters]) -> pd.DataFrame:
    """Return device time by ATen op, largest first.

    Args:
        analysis: what attribution found.
        **filters: the step, rank, phase or scope to sum over.

    Returns:
        ``aten_op``, ``gap`` and the sums; ``gap`` says why a row has no op.

    Raises:
        UsageError: There is no such step or phase.
    """
    return _sums(analysis, text_keys(analysis, "aten_op"), Selection(**filters))


def by_phase(analysis: Analysis, **filters: Unpack[Filters]) -> pd.DataFrame:
    """Return device time by phase, largest first.

    Args:
        analysis: what attribution found.
        **filters: the step, rank, phase or scope to sum over.

    Returns:
        ``phase`` and the sums.

    Raises:
        UsageError: There is no such step or phase.
    """
    return _sums(analysis, phase_keys(analysis), Selection(**filters))


def by_link(analysis: Analysis, **filters: Unpack[Filters]) -> pd.DataFrame:
    """Return device time by the rule that tied backward work to its forward, largest first.

    Args:
        analysis: what attribution found.
        **filters: the step, rank, phase or scope to sum over.

    Returns:
        ``forward_evidence``, ``gap`` and the sums. ``seq_nr`` and the like are rules that found
        the forward node, ``not_linked`` is where none did; what has none by its nature says what
        it is (``sum_of_gradients``, ``recomputed_forward``, ``mutation``, ``hook``); absent is
        work that differentiates nothing.

    Raises:
        UsageError: There is no such step or phase.
    """
    return _sums(analysis, text_keys(analysis, "forward_evidence"), Selection(**filters))


def by_mechanism(analysis: Analysis, **filters: Unpack[Filters]) -> pd.DataFrame:
    """Return device time by the way by which its source lines were found, largest first.

    Args:
        analysis: what attribution found.
        **filters: the step, rank, phase or scope to sum over.

    Returns:
        ``mechanism``, ``gap`` and the sums; absent is eager work, and what has no line.

    Raises:
        UsageError: There is no such step or phase.
    """
    return _sums(analysis, text_keys(analysis, "mechanism"), Selection(**filters))


def with_rooflines(
    analysis: Analysis,
    keys: Keys,
    selection: Selection,
    peaks: Mapping[str, Peak],
    more: Mapping[str, ExtensionArray] = NO_COLUMNS,
) -> pd.DataFrame:
    """Return the sums, with the columns of rooflines, which are split as time is.

    ``est_bytes``, ``est_flops``, ``roofline_ns`` and ``could_save_ns`` add up those parts of
    launches of which they are known; a rate is over the time of these parts.

    Args:
        analysis: what attribution found.
        keys: the rows, and that of each share.
        selection: what to sum over.
        peaks: what devices can do at best.
        more: further columns, one row for each key.
    """
    chosen = selection.shares(analysis, selection.profiled(analysis))
    key, rows = keys.of_share[chosen], len(keys.table)
    achieved = roofline_columns_by_key(analysis, peaks, np.flatnonzero(chosen), key, rows)
    return _sums(analysis, keys, selection, {**more, **achieved})


def _sums(
    analysis: Analysis,
    keys: Keys,
    selection: Selection,
    more: Mapping[str, ExtensionArray] = NO_COLUMNS,
) -> pd.DataFrame:
    chosen = selection.shares(analysis, selection.profiled(analysis))
    key, rows = keys.of_share[chosen], len(keys.table)
    phases = _phase_sums(analysis, key, chosen, rows)
    count, inclusive = _whole_launches(analysis, key, analysis.shares.launch[chosen], rows)
    duration = phases.sum(axis=1)
    steps = selection.count_steps(analysis)
    sums = frame(
        {
            "launches": whole(count),
            "duration_ns": whole(duration),
            **{name: whole(phases[:, at]) for at, name in enumerate(PHASES)},
            "inclusive_ns": whole(inclusive),
            "fraction": ratio(duration, int(duration.sum())),
            "steps": repeated(steps, rows, INT),
            "per_step_ns": ratio(duration, steps),
            **more,
        }
    )
    table = pd.concat([keys.table, sums], axis=1).loc[count > 0]
    return _in_order(table, keys.table.columns)


def _phase_sums(analysis: Analysis, key: Ints, chosen: Rows, rows: int) -> Ints:
    phase_of_place = np.array([PHASES.index(place.phase) for place in analysis.places], np.int64)
    phase = phase_of_place[analysis.shares.place[chosen]]
    sums = np.zeros((rows, len(PHASES)), np.int64)
    np.add.at(sums, (key, phase), analysis.shares.duration_ns[chosen])
    return sums


def launches_of_keys(analysis: Analysis, key: Ints, launch: Ints) -> tuple[Ints, Ints]:
    """Return each pair of a key and a launch that has a part in it once, in order of the keys.

    Args:
        analysis: what attribution found.
        key: the key of each part.
        launch: its launch.
    """
    every = max(len(analysis.launches), 1)
    # The parts are in order of their launches, so a stable sort by key sorts the pairs; keys are
    # few, and of 16 bits numpy sorts them in linear time.
    small = key.astype(np.uint16) if key.max(initial=0) < 1 << 16 else key
    pairs = (key * every + launch)[np.argsort(small, kind="stable")]
    is_new = np.append(True, np.diff(pairs) > 0)[: len(pairs)]
    once_key, once_launch = np.divmod(pairs[is_new], every)
    return once_key, once_launch


def _whole_launches(analysis: Analysis, key: Ints, launch: Ints, rows: int) -> tuple[Ints, Ints]:
    once_key, once_launch = launches_of_keys(analysis, key, launch)
    count = np.bincount(once_key, minlength=rows)
    inclusive = np.zeros(rows, np.int64)
    np.add.at(inclusive, once_key, analysis.launches.duration_ns[once_launch])
    return count, inclusive


def _in_order(table: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    by = ["duration_ns", *names]
    ascending = [name != "duration_ns" for name in by]
    return table.sort_values(by, ascending=ascending, ignore_index=True)
