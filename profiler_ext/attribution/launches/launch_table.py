"""The attribution of each launch: its places, and the split of its time among them.

Launches of one call site share one attribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profiler_ext.attribution.trace.lookups import NO_ROW, intern
from profiler_ext.records.analysis import Place, Shares
from profiler_ext.records.events import Codes, Interned, Ints
from profiler_ext.records.vocabulary import LaunchKind, Phase

_MAX_EXACT_PRODUCT = 2**62


@dataclass(frozen=True, slots=True)
class LaunchAttribution:
    """The attribution of a launch."""

    kind: LaunchKind
    places: tuple[int, ...]  # indices of its places
    weights: tuple[int, ...] = (1,)  # the split of its time among them
    kernel: str = ""  # Inductor's kernel name, or ``""``
    graph: int | None = None  # index of its graph, ``None`` outside captured graphs
    call_site: int | None = None  # ordinal of its call site, if any
    evidence: str = ""  # the rule, or ``""``
    in_graph: bool = False  # it ran in a call of a compiled graph, captured or not
    share_evidence: str = ""  # the rule that the weights are by; ``""`` of one place

    @property
    def main_place(self) -> int:
        """The place of the largest share; of equal shares the first."""
        return self.places[self.weights.index(max(self.weights))]


class LaunchTable:
    """The attribution of every launch, exactly one each."""

    def __init__(self, launches: int) -> None:
        self._index: dict[LaunchAttribution, int] = {}
        self._of_launch = np.full(launches, NO_ROW, dtype=np.int64)

    def number(self, outcome: LaunchAttribution) -> int:
        """Return the number of a verdict; equal ones have the same."""
        return self._index.setdefault(outcome, len(self._index))

    def assign(self, launches: Ints | int, numbers: Ints | int) -> None:
        """Give launches their verdicts."""
        self._of_launch[launches] = numbers

    @property
    def unassigned(self) -> Ints:
        """Return the launches without an attribution."""
        return np.flatnonzero(self._of_launch == NO_ROW)

    @property
    def distinct(self) -> tuple[LaunchAttribution, ...]:
        """The distinct verdicts."""
        return tuple(self._index)

    def spread(self, texts: Sequence[str]) -> Interned:
        """Turn one text for each distinct verdict into a column over the launches."""
        column = intern(texts)
        codes: Codes = column.codes[self._of_launch] if len(texts) else column.codes
        return Interned(codes, column.strings)

    def spread_rows(self, rows: Sequence[int | None]) -> Ints:
        """Turn one row for each distinct verdict into a column over the launches."""
        column = np.array([NO_ROW if row is None else row for row in rows], dtype=np.int64)
        return column[self._of_launch] if len(rows) else column

    def shares(self, durations_ns: Ints) -> Shares:
        """Split the time of every launch among its places."""
        launch, place, part = list[Ints](), list[Ints](), list[Ints]()
        order = np.argsort(self._of_launch, kind="stable")
        first = np.searchsorted(self._of_launch[order], np.arange(1, len(self._index)))
        groups = np.split(order, first) if len(order) else []
        for outcome, launches in zip(self._index, groups, strict=True):
            parts = split(durations_ns[launches], outcome.weights)
            launch.append(np.repeat(launches, len(outcome.places)))
            place.append(np.tile(np.array(outcome.places), len(launches)))
            part.append(parts.reshape(-1))
        return _sorted_by_launch(launch, place, part)


def _sorted_by_launch(
    launch: Sequence[Ints], place: Sequence[Ints], part: Sequence[Ints]
) -> Shares:
    nothing = np.empty(0, dtype=np.int64)
    rows = np.concatenate([nothing, *launch])
    order = np.argsort(rows, kind="stable")
    places = np.concatenate([nothing, *place])[order].astype(np.int32)
    return Shares(rows[order], places, np.concatenate([nothing, *part])[order])


def main_places(
    distinct: Sequence[LaunchAttribution], places: Sequence[Place]
) -> tuple[Place, ...]:
    """Return the place of each verdict's largest share."""
    return tuple(places[outcome.main_place] for outcome in distinct)


def main_phases(
    distinct: Sequence[LaunchAttribution], places: Sequence[Place]
) -> tuple[Phase, ...]:
    """Return the phase of each attribution's largest share, places of a phase summed."""
    # Of phases with equal shares the first named wins.
    return tuple(_main_phase(outcome, places) for outcome in distinct)


def _main_phase(outcome: LaunchAttribution, places: Sequence[Place]) -> Phase:
    shares: dict[Phase, int] = {}
    for place, part in zip(outcome.places, _parts(outcome.weights), strict=True):
        phase = places[place].phase
        shares[phase] = shares.get(phase, 0) + part
    return max(shares, key=shares.__getitem__)


def split(durations_ns: Ints, weights: Sequence[int]) -> Ints:
    """Split each duration by the weights, by the method of the largest remainder.

    Returns one row for each launch and one column for each part; a row adds up to its launch. Of
    equal remainders the earlier part gets the odd nanosecond.
    """
    parts = _parts(weights)
    total = sum(parts)
    exact = int(durations_ns.max(initial=0)) * total < _MAX_EXACT_PRODUCT
    dtype = np.dtype(np.int64) if exact else np.dtype(object)
    product = durations_ns.astype(dtype)[:, None] * np.array(parts)[None, :]
    parts_ns: Ints = (product // total).astype(np.int64)
    remainder = product % total
    by_remainder = np.argsort(-remainder, axis=1, kind="stable")
    rank = np.argsort(by_remainder, axis=1, kind="stable")
    left_over = durations_ns - parts_ns.sum(axis=1)
    extra_ns: Ints = (rank < left_over[:, None]).astype(np.int64)
    return parts_ns + extra_ns


def _parts(weights: Sequence[int]) -> list[int]:
    """Return the weights; equal ones, where all are zero."""
    return list(weights) if any(weights) else [1] * len(weights)
