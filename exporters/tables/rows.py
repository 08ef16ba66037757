"""Owns the two long tables: one row for each launch, and one for each part of a launch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray

from profiler_ext.exporters.tables.achieved import roofline_columns_by_launch
from profiler_ext.exporters.tables.arrays import (
    TEXT,
    INT,
    frame,
    gather,
    ratio,
    repeated,
    text,
    whole,
)
from profiler_ext.exporters.tables.schema import COLUMNS
from profiler_ext.exporters.tables.selection import Filters, Selection
from profiler_ext.exporters.tables.shapes import shape_columns
from profiler_ext.exporters.tables.sites import site_paths
from profiler_ext.records import Analysis, Codes
from profiler_ext.rooflines.peaks import PEAKS, Peak

_PLACE_COLUMNS = (
    "node",
    "aten_op",
    "seq_nr",
    "phase",
    "autograd_backward",
    "forward_node",
    "forward_evidence",
    "file",
    "line",
    "function",
    "code",
    "user_file",
    "user_line",
    "caller_file",
    "caller_line",
    "module",
    "module_class",
    "annotation",
)


def launches(
    analysis: Analysis, *, peaks: Mapping[str, Peak] = PEAKS, **filters: Unpack[Filters]
) -> pd.DataFrame:
    """Return one row for each launch, in order of start time.

    Launches outside the profiled steps are rows too; their ``step`` is absent.

    ``est_bytes`` and ``est_flops`` are estimates of what a call site moves and computes. Where
    one call of a library runs several kernels, they share its estimate in proportion to their
    time. ``est_gb_per_s`` and ``est_tflop_per_s`` are these over the launch's time, and
    ``est_peak_fraction`` is the larger part of the device's two peaks that they reach. An
    estimate of more than twice a peak is wrong and left out.

    Args:
        analysis: what attribution found.
        **filters: the step, rank, phase or scope; a launch's phase is the one with the largest
            share of its time.
        peaks: what devices can do at best, by the words of their names.

    Returns:
        The table; ``launch`` numbers the launches of a rank, filtered or not.

    Raises:
        UsageError: There is no such step or phase.
    """
    selection = Selection(**filters)
    chosen = selection.launches(analysis)
    if selection.phase is not None:
        chosen &= analysis.launches.phase.where(selection.phase)
    return _launch_frame(analysis, peaks).loc[chosen].reset_index(drop=True)


def attribution(analysis: Analysis, **filters: Unpack[Filters]) -> pd.DataFrame:
    """Return one row for each part of a launch: its FX node, its ATen op, or its gap.

    Args:
        analysis: what attribution found.
        **filters: the step and rank of the launches, and the phase of the parts.

    Returns:
        The table; the ``duration_ns`` of a launch's rows add up to the launch.

    Raises:
        UsageError: There is no such step or phase.
    """
    selection = Selection(**filters)
    chosen = selection.shares(analysis, selection.launches(analysis))
    launch = analysis.shares.launch[chosen]
    place = analysis.shares.place[chosen]
    duration = analysis.shares.duration_ns[chosen]
    columns = {
        "rank": repeated(analysis.recording.settings.rank, len(launch), INT),
        "launch": whole(launch),
        **{name: _of_place(analysis, name, place) for name in _PLACE_COLUMNS},
        "share": ratio(duration, analysis.launches.duration_ns[launch]),
        "duration_ns": whole(duration),
        "evidence": _of_place(analysis, "evidence", place),
        "mechanism": _of_place(analysis, "mechanism", place),
        "gap": _of_place(analysis, "gap", place),
    }
    return frame(columns)


def _of_place(analysis: Analysis, name: str, place: Codes) -> ExtensionArray:
    return gather([getattr(each, name) for each in analysis.places], place, COLUMNS[name].dtype)


def _launch_frame(analysis: Analysis, peaks: Mapping[str, Peak]) -> pd.DataFrame:
    rows = analysis.launches
    graphs = analysis.recording.graphs
    columns = {
        "rank": repeated(analysis.recording.settings.rank, len(rows), INT),
        "launch": whole(np.arange(len(rows))),
        "step": whole(rows.step),
        "name": text(rows.name),
        "kernel": text(rows.kernel, absent=""),
        "kind": text(rows.kind),
        "scope": text(rows.scope),
        "device": whole(rows.device),
        "stream": whole(rows.stream),
        "start_ns": whole(rows.start_ns),
        "duration_ns": whole(rows.duration_ns),
        "phase": text(rows.phase),
        "graph": gather([graph.key for graph in graphs], rows.graph, TEXT),
        "compile_id": gather([graph.compile_id for graph in graphs], rows.graph, TEXT),
        "call_site": site_paths(analysis),
        "kernel_source": gather([graph.output_module for graph in graphs], rows.graph, TEXT),
        "process_group": _process_groups(analysis),
        "correlation": whole(rows.correlation),
        "external_id": whole(rows.external_id),
        "level": text(rows.level),
        "evidence": text(rows.evidence, absent=""),
        "mechanism": text(rows.mechanism, absent=""),
        "gap": text(rows.gap, absent=""),
    }
    shapes = shape_columns(analysis, np.arange(len(rows)))
    return frame(columns | shapes | roofline_columns_by_launch(analysis, peaks))


def _process_groups(analysis: Analysis) -> ExtensionArray:
    """Return the group of each launch that communicates; the only one where one is there."""
    collectives = analysis.communication
    codes = np.full(len(analysis.launches), -1, np.int64)
    codes[collectives.launch] = collectives.process_group.codes
    return gather([group or None for group in collectives.process_group.strings], codes, TEXT)
