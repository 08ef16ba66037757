"""Which ranks and hosts are slower than the others, and at which line.

A time stands out where it exceeds the median of all ranks by a margin, by six times the median
deviation, and by a hundredth of a step. What explains most comes first and is taken off: a host as
a whole, then a rank, then a line; a rank that is late because its device is slower counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from profiler_ext.findings import MIN_FRACTION
from profiler_ext.findings.outliers import MIN_SAMPLES, outlier_indices

Reals = npt.NDArray[np.float64]
_SLOWER_MARGIN, _LINE_MARGIN, _LATE_MARGIN = 0.05, 0.2, 0.0
_MIN_FRACTION_OF_HOST = 0.75
_MIN_RANKS_OF_HOST = 2


class StragglerKind(Enum):
    """In what a rank, or a host, is behind."""

    SLOWER_DEVICE = "slower_device"
    SLOWER_LINE = "slower_line"
    LATE_AT_COLLECTIVES = "late_at_collectives"

    @property
    def label(self) -> str:
        """What it means, for a person."""
        return _WORDS[self]


_WORDS = {
    StragglerKind.SLOWER_DEVICE: "its device is slower at everything",
    StragglerKind.SLOWER_LINE: "it is slower at a line",
    StragglerKind.LATE_AT_COLLECTIVES: "it comes late to collectives",
}


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank, or a whole host, that is behind."""

    kind: StragglerKind
    host: str  # ``""`` where unknown
    ranks: tuple[int, ...]  # indices of its ranks; of a host, all that are behind
    is_host: bool  # most of the host's ranks are behind
    excess_ns: float  # in a step, over the median rank; of a host, the median of its ranks
    slowdown: float | None  # over the median rank; ``None`` for a late rank
    line: int | None = None  # index of the line


@dataclass(frozen=True, slots=True)
class RankStats:
    """The times by which ranks are compared."""

    work_ns: Reals  # device time a step by line (row) and rank (column), without collectives
    # lateness at collectives in a step, from the median rank's; NaN without matched collectives
    delay_ns: Reals
    step_ns: float  # wall time of the median step
    hosts: Sequence[str]  # of each rank

    @property
    def is_judged(self) -> bool:
        """Whether there are enough ranks to tell what is usual."""
        return len(self.hosts) >= MIN_SAMPLES


def stragglers(rank_stats: RankStats) -> list[Straggler]:
    """Return the stragglers, the largest excess first."""
    if not rank_stats.is_judged or not rank_stats.step_ns:
        return []
    times = slowdowns(rank_stats.work_ns)
    candidates = _slower_devices(rank_stats, times)
    slow = {rank for each in candidates for rank in each.ranks}
    factors = np.array([times[rank] if rank in slow else 1.0 for rank in range(len(times))])
    for line, own in enumerate(rank_stats.work_ns):
        candidates += _slower_at_line(rank_stats, line, own / factors)
    candidates += _late_ranks(rank_stats)
    merged = _merged_by_host(rank_stats, candidates)
    return sorted(merged, key=lambda each: (-each.excess_ns, each.kind.value, each.ranks))


def slowdowns(work_ns: Reals) -> Reals:
    """Return each rank's time over the median rank's, over all lines.

    The median of its lines' ratios, weighted by time, so that no single line decides.
    """
    usual = np.median(work_ns, axis=1) if work_ns.size else np.zeros(len(work_ns))
    lines = np.flatnonzero(usual > 0)
    if not len(lines):
        return np.ones(work_ns.shape[1])
    ratios, weights = work_ns[lines] / usual[lines, None], usual[lines]
    order = np.argsort(ratios, axis=0)
    reached = np.cumsum(weights[order], axis=0) >= weights.sum() / 2
    middle = np.take_along_axis(order, reached.argmax(axis=0)[None, :], axis=0)
    result: Reals = np.take_along_axis(ratios, middle, axis=0)[0]
    return result


def _slower_devices(rank_stats: RankStats, times: Reals) -> list[Straggler]:
    usual = float(np.median(rank_stats.work_ns.sum(axis=0)))
    slow = [rank for rank in outlier_indices(times.tolist(), _SLOWER_MARGIN) if times[rank] > 1]
    return _each(rank_stats, StragglerKind.SLOWER_DEVICE, slow, (times - 1) * usual, times)


def _slower_at_line(rank_stats: RankStats, line: int, own: Reals) -> list[Straggler]:
    usual = float(np.median(own))
    slow = outlier_indices(own.tolist(), _LINE_MARGIN)
    times = own / usual if usual else None
    return _each(rank_stats, StragglerKind.SLOWER_LINE, slow, own - usual, times, line)


def _late_ranks(rank_stats: RankStats) -> list[Straggler]:
    """Return the ranks that are later than their devices' longer work explains."""
    device_time_ns = rank_stats.work_ns.sum(axis=0)
    own = np.nan_to_num(rank_stats.delay_ns)
    if rank_stats.work_ns.size:
        own = own - np.maximum(device_time_ns - np.median(device_time_ns), 0)
    late = outlier_indices(own.tolist(), _LATE_MARGIN)
    return _each(
        rank_stats, StragglerKind.LATE_AT_COLLECTIVES, late, own - float(np.median(own)), None
    )


def _each(
    rank_stats: RankStats,
    kind: StragglerKind,
    ranks: Iterable[int],
    excess_ns: Reals,
    times: Reals | None,
    line: int | None = None,
) -> list[Straggler]:
    """Return a straggler for each rank whose excess is a part of the step that matters."""
    return [
        Straggler(
            kind,
            rank_stats.hosts[rank],
            (rank,),
            False,
            float(excess_ns[rank]),
            None if times is None else float(times[rank]),
            line,
        )
        for rank in ranks
        if excess_ns[rank] >= MIN_FRACTION * rank_stats.step_ns
    ]


def _merged_by_host(rank_stats: RankStats, candidates: Sequence[Straggler]) -> list[Straggler]:
    """Merge into one straggler a host most of whose ranks are behind in the same way."""
    sizes = Counter(rank_stats.hosts)
    groups: dict[tuple[StragglerKind, str, int | None], list[Straggler]] = {}
    for each in candidates:
        groups.setdefault((each.kind, each.host, each.line), []).append(each)
    merged: list[Straggler] = []
    for (_, host, _), own in groups.items():
        least = max(_MIN_RANKS_OF_HOST, _MIN_FRACTION_OF_HOST * sizes[host])
        is_one = bool(host) and len(sizes) > 1 and len(own) >= least
        merged += [_host_straggler(host, own)] if is_one else own
    return merged


def _host_straggler(host: str, own: Sequence[Straggler]) -> Straggler:
    times = [each.slowdown for each in own if each.slowdown is not None]
    return Straggler(
        own[0].kind,
        host,
        tuple(sorted(rank for each in own for rank in each.ranks)),
        True,
        float(np.median([each.excess_ns for each in own])),
        float(np.median(times)) if times else None,
        own[0].line,
    )


def ranks_by_host(hosts: Sequence[str]) -> Mapping[str, list[int]]:
    """Return the indices of each host's ranks."""
    result: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        result.setdefault(host, []).append(rank)
    return result
