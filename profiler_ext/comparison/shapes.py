"""Owns how the kernels of a side were launched: over how many blocks, of how many threads.

Inductor tries a few sizes when it compiles a kernel, and keeps what was fastest. So one program can
have one kernel launched otherwise wherever it was compiled anew, and its time differs by that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from profiler_ext.comparison.matching.kernels import Kernel
from profiler_ext.comparison.parts import kernel_or_name
from profiler_ext.kineto.launch_shapes import launch_shapes
from profiler_ext.records import Analysis

Shape = tuple[str, str]
"""Grid and block, ``1024`` or ``64x4`` each."""


def shapes_of(analyses: Iterable[Analysis]) -> Mapping[Kernel, Shape]:
    """Return how each kernel was launched whose launches are alike.

    Args:
        analyses: what attribution found on the ranks of the runs.
    """
    every: dict[Kernel, set[Shape]] = {}
    for analysis in analyses:
        for kernel, shape in _distinct(analysis):
            every.setdefault(kernel, set()).add(shape)
    alike = ((kernel, own) for kernel, own in every.items() if len(own) == 1)
    return {kernel: shape for kernel, (shape,) in alike if all(shape)}


def _distinct(analysis: Analysis) -> Iterable[tuple[Kernel, Shape]]:
    launches, kernel = analysis.launches, kernel_or_name(analysis)
    shapes = launch_shapes(analysis.recording.trace, launches.event)
    columns = np.column_stack(
        (kernel.codes, launches.kind.codes, shapes.grid.codes, shapes.block.codes)
    )
    for name, kind, grid, block in np.unique(columns, axis=0).tolist():
        named = kernel.strings[name] or None, launches.kind.strings[kind]
        sizes = shapes.grid.strings[grid], shapes.block.strings[block]
        yield named, (_short(sizes[0]), _short(sizes[1]))


def _short(size: str) -> str:
    """Return a size without the dimensions at its end that are 1."""
    while size.endswith("x1"):
        size = size.removesuffix("x1")
    return size
