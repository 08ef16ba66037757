"""Owns what launches are made of; launches of one kernel with the same content count together.

The name of a kernel does not tell: ``extern_kernels.mm`` runs for many lines, each time for one.
Modules do not tell contents apart, so that the repeated layers of a model count together.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from profiler_ext.exporters.tensorboard_plugin.document import Fusion, Part
from profiler_ext.records import Ints

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
    rows, sums = _summed(np.column_stack([fusion]), launch, duration_ns)
    kernel = dict(zip(fusion.tolist(), numbers["kernel"].tolist(), strict=True))
    fusions = tuple(Fusion(kernel[at], *sums[at]) for (at,) in rows)
    columns = np.column_stack([fusion, *(numbers[name] for name in _COLUMNS)])
    rows, sums = _summed(columns, launch, duration_ns)
    return fusions, tuple(Part(*(*row, *sums[at])) for at, row in enumerate(rows))


def _fusion_of(launch: Ints, numbers: Mapping[str, Ints]) -> Ints:
    columns = np.column_stack([numbers[name] for name in _CONTENT])
    _, content = np.unique(columns, axis=0, return_inverse=True)
    held: dict[int, set[int]] = {}
    for row, each in zip(launch.tolist(), content.ravel().tolist(), strict=True):
        held.setdefault(row, set()).add(each)
    kernel = dict(zip(launch.tolist(), numbers["kernel"].tolist(), strict=True))
    known: dict[tuple[int, frozenset[int]], int] = {}
    of_launch = {
        row: known.setdefault((kernel[row], frozenset(some)), len(known))
        for row, some in held.items()
    }
    return np.array([of_launch[row] for row in launch.tolist()], np.int64)


def _summed(
    columns: Ints, launch: Ints, duration_ns: Ints
) -> tuple[list[list[int]], list[tuple[int, int]]]:
    """Return the distinct rows, and for each the number of launches and the time."""
    rows, of_share = np.unique(columns, axis=0, return_inverse=True)
    of_share = of_share.ravel()
    duration = np.zeros(len(rows), np.int64)
    np.add.at(duration, of_share, duration_ns)
    once = np.unique(np.column_stack((of_share, launch)), axis=0)[:, 0]
    launches = np.bincount(once, minlength=len(rows))
    return rows.tolist(), list(zip(launches.tolist(), duration.tolist(), strict=True))
