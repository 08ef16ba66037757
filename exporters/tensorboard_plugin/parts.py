"""Owns what launches are made of; launches of one kernel with the same content count together.

The name of a kernel does not tell: ``extern_kernels.mm`` runs for many lines, each time for one.
Modules do not tell contents apart, so that the repeated layers of a model count together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from profiler_ext.exporters.tensorboard_plugin.document import Fusion, Part
from profiler_ext.records import Ints, first_rows, numbered

_CONTENT = ("line", "op", "phase")
_COLUMNS = ("line", "module", "op", "phase")


def fusions_and_parts(
    launch: Ints, duration_ns: Ints, numbers: Mapping[str, Ints]
) -> tuple[tuple[Fusion, ...], tuple[Part, ...]]:
    """Sum shares that are alike in everything which the view tells apart.

    Args:
        launch: the launch of each share.
        duration_ns: its part of the launch.
        numbers: for each share its ``kernel``, ``line``, ``module``, ``op`` and ``phase``.

    Returns:
        The distinct contents of launches, and the parts of each.
    """
    fusion = _fusion_of(launch, numbers)
    rows, sums = _summed([fusion], launch, duration_ns)
    kernel = dict(zip(fusion.tolist(), numbers["kernel"].tolist(), strict=True))
    fusions = tuple(Fusion(kernel[at], *sums[at]) for (at,) in rows)
    columns = [fusion, *(numbers[name] for name in _COLUMNS)]
    rows, sums = _summed(columns, launch, duration_ns)
    return fusions, tuple(Part(*(*row, *sums[at])) for at, row in enumerate(rows))


def _fusion_of(launch: Ints, numbers: Mapping[str, Ints]) -> Ints:
    """Return the number of each share's content, in the order in which launches have new ones."""
    content = numbered([numbers[name] for name in _CONTENT])
    launches, shares = np.unique(launch, return_index=True)
    of_launch, contents = _pairs(launch, content)
    bounds = np.searchsorted(of_launch, np.append(launches, launches[-1] + 1))
    content_bytes, size = contents.tobytes(), contents.itemsize
    texts = [content_bytes[begin:end] for begin, end in pairwise((bounds * size).tolist())]
    kernels = numbers["kernel"][shares].tolist()
    known: dict[tuple[int, bytes], int] = {}
    fusion_of_launch = np.empty(len(launches), np.int64)
    for at in np.argsort(shares).tolist():
        fusion_of_launch[at] = known.setdefault((kernels[at], texts[at]), len(known))
    return fusion_of_launch[np.searchsorted(launches, launch)]


def _summed(
    columns: Sequence[Ints], launch: Ints, duration_ns: Ints
) -> tuple[list[list[int]], list[tuple[int, int]]]:
    """Return the distinct rows, in order, and for each the number of launches and the time."""
    of_share = numbered(columns)
    firsts = first_rows(of_share)
    rows = np.column_stack([column[firsts] for column in columns])
    duration = np.zeros(len(rows), np.int64)
    np.add.at(duration, of_share, duration_ns)
    launches = np.bincount(_pairs(of_share, launch)[0], minlength=len(rows))
    return rows.tolist(), list(zip(launches.tolist(), duration.tolist(), strict=True))


def _pairs(first: Ints, second: Ints) -> tuple[Ints, Ints]:
    """Return the distinct pairs, in order; neither column has a number below zero."""
    of_second = int(second.max()) + 1
    return np.divmod(np.unique(first * of_second + second), of_second)
