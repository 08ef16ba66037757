"""Owns which ranks and hosts are slower than the others, and at which line.

A time is judged against the median of all ranks: it stands out where it is beyond a part of that
median, beyond six times the median deviation, and takes a hundredth of a step. What explains much
is told first and taken off: a host as a whole, then a rank, then a line; and a rank that comes late
because its device is slower is not told twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from profiler_ext.findings import LEAST_FRACTION
from profiler_ext.findings.siblings import FEWEST, standing_out

Reals = npt.NDArray[np.float64]
_SLOWER, _AT_LINE, _LATE = 0.05, 0.2, 0.0
_MOST_OF_HOST = 0.75
_FEWEST_OF_HOST = 2


class StragglerKind(Enum):
    """In what a rank, or a host, is behind the others."""

    SLOWER_DEVICE = "slower_device"
    SLOWER_LINE = "slower_line"
    COMES_LATE = "comes_late"

    @property
    def words(self) -> str:
        """What it means, for a person."""
        return _WORDS[self]


_WORDS = {
    StragglerKind.SLOWER_DEVICE: "its device is slower at everything",
    StragglerKind.SLOWER_LINE: "it is slower at a line",
    StragglerKind.COMES_LATE: "it comes late to collectives",
}


@dataclass(frozen=True, slots=True)
class Straggler:
    """That a rank, or a host as a whole, is behind.

    Attributes:
        kind: in what.
        host: the host; ``""`` where that is not told.
        ranks: the indices of its ranks; of a host all that are behind.
        is_host: most of the host's ranks are.
        excess_ns: how much more it takes in a step than the median rank; of a host the median.
        times: how many times as long it takes; ``None`` of a rank that comes late.
        line: index of the line.
    """

    kind: StragglerKind
    host: str
    ranks: tuple[int, ...]
    is_host: bool
    excess_ns: float
    times: float | None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Paces:
    """What ranks are judged by.

    Attributes:
        work_ns: device time a step of each line (row) on each rank (column), collectives left out.
        behind_ns: how much later each rank comes to collectives in a step than the median rank;
            NaN where no collective of it is known to be another's too.
        step_ns: wall time of the usual step.
        hosts: the host of each rank.
    """

    work_ns: Reals
    behind_ns: Reals
    step_ns: float
    hosts: Sequence[str]

    @property
    def is_judged(self) -> bool:
        """Whether there are ranks enough to say what is usual."""
        return len(self.hosts) >= FEWEST


def stragglers(paces: Paces) -> list[Straggler]:
    """Return who is behind, what costs a step most first.

    Args:
        paces: what ranks are judged by.
    """
    if not paces.is_judged or not paces.step_ns:
        return []
    times = slowness(paces.work_ns)
    slower = _slower(paces, times)
    slow = {rank for each in slower for rank in each.ranks}
    factors = np.array([times[rank] if rank in slow else 1.0 for rank in range(len(times))])
    lines = [
        found
        for line, own in enumerate(paces.work_ns)
        for found in _at_line(paces, line, own / factors)
    ]
    late = _late(paces)
    found = [*slower, *_of_hosts(paces, lines), *late]
    return sorted(found, key=lambda each: (-each.excess_ns, each.kind.value, each.ranks))


def slowness(work_ns: Reals) -> Reals:
    """Return how many times as long as the median rank each takes, over all lines.

    It is the median of its lines, each weighed by its time, so that no single line makes it.

    Args:
        work_ns: time of each line (row) on each rank (column).
    """
    usual = np.median(work_ns, axis=1) if work_ns.size else np.zeros(len(work_ns))
    lines = np.flatnonzero(usual > 0)
    if not len(lines):
        return np.ones(work_ns.shape[1])
    ratios, weights = work_ns[lines] / usual[lines, None], usual[lines]
    order = np.argsort(ratios, axis=0)
    reached = np.cumsum(weights[order], axis=0) >= weights.sum() / 2
    middle = np.take_along_axis(order, reached.argmax(axis=0)[None, :], axis=0)
    found: Reals = np.take_along_axis(ratios, middle, axis=0)[0]
    return found


def _slower(paces: Paces, times: Reals) -> list[Straggler]:
    whole = paces.work_ns.sum(axis=0)
    usual = float(np.median(whole))
    out = [
        rank
        for rank in standing_out(times.tolist(), _SLOWER)
        if times[rank] > 1 and (times[rank] - 1) * usual >= LEAST_FRACTION * paces.step_ns
    ]
    excess = {rank: (float(times[rank]) - 1) * usual for rank in out}
    kind = StragglerKind.SLOWER_DEVICE
    return _of_hosts(
        paces,
        [
            Straggler(kind, paces.hosts[rank], (rank,), False, excess[rank], float(times[rank]))
            for rank in out
        ],
    )


def _at_line(paces: Paces, line: int, own: Reals) -> list[Straggler]:
    usual = float(np.median(own))
    return [
        Straggler(
            StragglerKind.SLOWER_LINE,
            paces.hosts[rank],
            (rank,),
            False,
            float(own[rank] - usual),
            float(own[rank] / usual) if usual else None,
            line,
        )
        for rank in standing_out(own.tolist(), _AT_LINE)
        if own[rank] - usual >= LEAST_FRACTION * paces.step_ns
    ]


def _late(paces: Paces) -> list[Straggler]:
    """Return who comes late by more than what its device runs longer."""
    whole = paces.work_ns.sum(axis=0)
    behind_ns = np.nan_to_num(paces.behind_ns)
    longer = np.maximum(whole - np.median(whole), 0) if paces.work_ns.size else 0 * behind_ns
    own = behind_ns - longer
    usual = float(np.median(own))
    return _of_hosts(
        paces,
        [
            Straggler(
                StragglerKind.COMES_LATE,
                paces.hosts[rank],
                (rank,),
                False,
                float(own[rank] - usual),
                None,
            )
            for rank in standing_out(own.tolist(), _LATE)
            if own[rank] - usual >= LEAST_FRACTION * paces.step_ns
        ],
    )


def _of_hosts(paces: Paces, found: Sequence[Straggler]) -> list[Straggler]:
    """Tell a host as one where most of its ranks are behind in the same."""
    sizes: dict[str, int] = {}
    for host in paces.hosts:
        sizes[host] = sizes.get(host, 0) + 1
    groups: dict[tuple[str, int | None], list[Straggler]] = {}
    for each in found:
        groups.setdefault((each.host, each.line), []).append(each)
    told: list[Straggler] = []
    for (host, _), own in groups.items():
        least = max(_FEWEST_OF_HOST, _MOST_OF_HOST * sizes[host])
        is_one = bool(host) and len(sizes) > 1 and len(own) >= least
        told += [_as_host(host, own)] if is_one else own
    return told


def _as_host(host: str, own: Sequence[Straggler]) -> Straggler:
    times = [each.times for each in own if each.times is not None]
    return Straggler(
        own[0].kind,
        host,
        tuple(sorted(rank for each in own for rank in each.ranks)),
        True,
        float(np.median([each.excess_ns for each in own])),
        float(np.median(times)) if times else None,
        own[0].line,
    )


def by_host(hosts: Sequence[str]) -> Mapping[str, list[int]]:
    """Return the indices of the ranks of each host, in the order in which hosts are met."""
    found: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        found.setdefault(host, []).append(rank)
    return found
