"""Owns the columns that say how kernels were launched: their blocks, registers and memory."""

from __future__ import annotations

import numpy as np
from pandas.api.extensions import ExtensionArray

from profiler_ext.exporters.tables.arrays import TEXT, gather, real, whole
from profiler_ext.kineto.launch_shapes import LaunchShapes, launch_shapes
from profiler_ext.records import Analysis, Ints

LAUNCH_SHAPE_COLUMNS = ("grid", "block", "registers_per_thread", "shared_memory_bytes", "est_occupancy")


def shape_columns(analysis: Analysis, launch: Ints) -> dict[str, ExtensionArray]:
    """Return how some launches were launched, as the trace tells; absent where it does not.

    Args:
        analysis: what attribution found.
        launch: the launches.
    """
    return _columns(launch_shapes_of(analysis).at(launch))


def launch_shapes_of(analysis: Analysis) -> LaunchShapes:
    """Return how all launches were launched, which is read of the trace once."""
    trace, rows = analysis.recording.trace, analysis.launches.event
    return analysis.derived.once("launch_shapes", lambda: launch_shapes(trace, rows))


def _columns(shapes: LaunchShapes) -> dict[str, ExtensionArray]:
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
) -> dict[str, ExtensionArray]:
    """Return for each key how its launches were launched; absent where they were not alike.

    Args:
        analysis: what attribution found.
        key: a key for each launch, in order.
        launch: the launches.
        rows: how many keys there are.
    """
    shapes = _columns(launch_shapes_of(analysis).at(launch))
    return {name: _common(column, key, rows) for name, column in shapes.items()}


def _common(column: ExtensionArray, key: Ints, rows: int) -> ExtensionArray:
    codes, distinct = column.factorize(use_na_sentinel=False)
    least, most = np.full(rows, len(distinct)), np.full(rows, -1)
    np.minimum.at(least, key, codes)
    np.maximum.at(most, key, codes)
    common: ExtensionArray = distinct.take(np.where(least == most, most, -1), allow_fill=True)
    return common
