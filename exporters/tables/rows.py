"""Tables of one row per launch or part: call site, launch shape, roofline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

import numpy as np

from profiler_ext.exporters.tables.schema import COLUMNS, frame, ratio, real, repeated, text, whole
from profiler_ext.exporters.tables.selection import Filters, Selection
from profiler_ext.exporters.tables.table import INT, TEXT, AnyColumn, Table, gather
from profiler_ext.kineto.launch_shapes import LaunchShapes, launch_shapes
from profiler_ext.kineto.op_inputs import OpInput, inputs_of
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Codes, Interned, Ints
from profiler_ext.records.share_sums import KeyedShares
from profiler_ext.rooflines.peaks import PEAKS, Peak
from profiler_ext.rooflines.rooflines import Rooflines, rooflines
from profiler_ext.rooflines.sums import RooflineSums, part_sums

LAUNCH_SHAPE_COLUMNS = (
    "grid",
    "block",
    "registers_per_thread",
    "shared_memory_bytes",
    "est_occupancy",
)
_PLACE_COLUMNS = (
    *("node", "aten_op", "seq_nr", "phase"),
    *("autograd_backward", "forward_node", "forward_evidence"),
    *("file", "line", "function", "code", "user_file", "user_line", "caller_file", "caller_line"),
    *("module", "module_class", "annotation"),
)


def site_paths(analysis: Analysis) -> AnyColumn:
    """Return each launch's call site in its graph's wrapper as a path; absent outside of graphs."""
    graph, site = analysis.launches.graph, analysis.launches.call_site
    known = ~(np.ma.getmaskarray(graph) | np.ma.getmaskarray(site))
    pairs = np.column_stack((np.ma.getdata(graph)[known], np.ma.getdata(site)[known]))
    distinct, inverse = np.unique(pairs, axis=0, return_inverse=True)
    codes = np.full(len(known), -1, np.int64)
    codes[known] = inverse.ravel()
    graphs = analysis.recording.graphs
    sites = [{site.ordinal: site.path for site in reversed(g.call_sites)} for g in graphs]
    return gather([sites[g].get(int(s), str(s)) for g, s in distinct], codes, TEXT)


def input_shapes(analysis: Analysis) -> Interned:
    """Return each launch's input tensors: ``bf16[8, 768] f32[768]``; ``""`` if unknown."""
    trace, ops = analysis.recording.trace, analysis.launches.op_event
    known = ~np.ma.getmaskarray(ops)
    rows, inverse = np.unique(ops.data[known], return_inverse=True)
    inputs = inputs_of(trace.raw, trace.events.position[rows])
    texts = list(map(_inputs, inputs.distinct))
    pool = {text: at for at, text in enumerate(dict.fromkeys(("", *texts)))}
    codes = np.zeros(len(ops), np.int32)
    of_distinct = np.array([pool[text] for text in texts], np.int32)
    codes[known] = of_distinct[inputs.codes][inverse.ravel()]
    return Interned(codes, tuple(pool))


def _inputs(inputs: tuple[OpInput, ...] | None) -> str:
    tensors = (each for each in inputs or () if each.dtype is not None)
    return " ".join(f"{each.dtype}[{', '.join(map(str, each.sizes))}]" for each in tensors)


def shape_columns(analysis: Analysis, launch: Ints) -> dict[str, AnyColumn]:
    """Return launch shapes from the trace; absent where it has none."""
    return _columns(launch_shapes_of(analysis).at(launch))


def launch_shapes_of(analysis: Analysis) -> LaunchShapes:
    """Return the launch shapes of all launches, cached."""
    trace, rows = analysis.recording.trace, analysis.launches.event
    return analysis.derived.once("launch_shapes", lambda: launch_shapes(trace, rows))


def _columns(shapes: LaunchShapes) -> dict[str, AnyColumn]:
    columns = (
        gather([size or None for size in shapes.grid.strings], shapes.grid.codes, TEXT),
        gather([size or None for size in shapes.block.strings], shapes.block.codes, TEXT),
        whole(shapes.registers_per_thread),
        whole(shapes.shared_memory_bytes),
        real(np.ma.divide(shapes.occupancy_percent, 100)),
    )
    return dict(zip(LAUNCH_SHAPE_COLUMNS, columns, strict=True))


def common_launch_shapes(
    analysis: Analysis, key: Ints, launch: Ints, rows: int
) -> dict[str, AnyColumn]:
    """Return each key's launch shape; absent where launches differ."""
    shapes = _columns(launch_shapes_of(analysis).at(launch))
    return {name: _common(column, key, rows) for name, column in shapes.items()}


def _common(column: AnyColumn, key: Ints, rows: int) -> AnyColumn:
    codes = column.equal_codes()
    least, most = np.full(rows, len(codes)), np.full(rows, -2)
    np.minimum.at(least, key, codes)
    np.maximum.at(most, key, codes)
    row_of = np.full(len(codes) + 1, -1, np.int64)
    row_of[codes] = np.where(codes < 0, -1, np.arange(len(codes)))
    return column.take(row_of[np.where(least == most, most, -1)])


def roofline_columns_by_launch(
    analysis: Analysis, peaks: Mapping[str, Peak]
) -> dict[str, AnyColumn]:
    """Return the roofline columns, one row per launch."""
    estimates = rooflines(analysis, peaks)
    evidence = {"unit_evidence": text(estimates.unit_evidence, absent="")}
    return _roofline_columns(estimates, evidence)


def roofline_columns_by_key(shares: KeyedShares, peaks: Mapping[str, Peak]) -> dict[str, AnyColumn]:
    """Return the roofline columns summed by key; rates cover the parts with an estimate."""
    return _roofline_columns(part_sums(shares, rooflines(shares.analysis, peaks)).summed(), {})


def _roofline_columns(
    sums: Rooflines | RooflineSums, evidence: dict[str, AnyColumn]
) -> dict[str, AnyColumn]:
    return {
        "est_bytes": whole(sums.bytes),
        "est_flops": whole(sums.flops),
        "est_gb_per_s": real(sums.gb_per_s),
        "est_tflop_per_s": real(sums.tflop_per_s),
        "est_attainable_tflop_per_s": real(sums.attainable_tflop_per_s),
        "est_peak_fraction": real(sums.peak_fraction),
        "unit": text(sums.unit, absent=""),
        **evidence,
        "bound": text(sums.bound, absent=""),
        "roofline_ns": whole(sums.roofline_ns),
        "could_save_ns": whole(sums.could_save_ns),
    }


def launches(
    analysis: Analysis, *, peaks: Mapping[str, Peak] = PEAKS, **filters: Unpack[Filters]
) -> Table:
    """Return one row per launch, in start order; outside of profiled steps ``step`` is absent.

    ``est_bytes`` and ``est_flops`` estimate a call site's traffic and operations; several kernels
    of one library call share them in proportion to time. ``est_peak_fraction`` is the larger
    fraction of the device's two peaks. Estimates beyond twice a peak are wrong and left out.

    A launch's phase, for the filter, is that of its largest share.
    """
    selection = Selection(**filters)
    chosen = selection.launches(analysis)
    if selection.phase is not None:
        chosen &= analysis.launches.phase.where(selection.phase)
    return _launch_frame(analysis, peaks).take(chosen)


def attribution(analysis: Analysis, **filters: Unpack[Filters]) -> Table:
    """Return one row per part of a launch: FX node, ATen op, or gap.

    ``duration_ns`` adds up to the launch. The phase filter is that of the parts.
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


def _of_place(analysis: Analysis, name: str, place: Codes) -> AnyColumn:
    return gather([getattr(each, name) for each in analysis.places], place, COLUMNS[name].dtype)


def _launch_frame(analysis: Analysis, peaks: Mapping[str, Peak]) -> Table:
    rows = analysis.launches
    graphs = analysis.recording.graphs
    collectives = analysis.communication
    codes = np.full(len(analysis.launches), -1, np.int64)
    codes[collectives.launch] = collectives.process_group.codes
    process_groups = gather(
        [group or None for group in collectives.process_group.strings], codes, TEXT
    )
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
        "process_group": process_groups,
        "correlation": whole(rows.correlation),
        "external_id": whole(rows.external_id),
        "level": text(rows.level),
        "evidence": text(rows.evidence, absent=""),
        "mechanism": text(rows.mechanism, absent=""),
        "gap": text(rows.gap, absent=""),
        "share_evidence": text(rows.share_evidence, absent=""),
    }
    shapes = shape_columns(analysis, np.arange(len(rows)))
    return frame(columns | shapes | roofline_columns_by_launch(analysis, peaks))
