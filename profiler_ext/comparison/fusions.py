"""Which fusions changed: launches that compute other sets of ops than before.

A launch computes a set of ops, each with its line and phase. A set that both sides launch did not
change. Each of the others is grouped with the set of the other side with which it shares most time.
Groups without a set of several ops are dropped: nothing was fused there, and the tables have them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from profiler_ext.comparison.matched import NO_WORK, Matched
from profiler_ext.comparison.parts import NO_LAUNCH, Parts
from profiler_ext.comparison.records import Account, FusedKernel, FusionChange, NotFused, Subject
from profiler_ext.comparison.sides import Side
from profiler_ext.comparison.significance import Sample, change_of_all
from profiler_ext.records.events import Ints
from profiler_ext.records.share_sums import sum_by, sum_by_name
from profiler_ext.rooflines.intermediates import passed_buffers

Work = frozenset[int]


@dataclass(frozen=True, slots=True)
class _LaunchGroup:
    """The launches of a side that compute one set of ops."""

    parts: Ints  # rows of the side's parts
    launches: int


def fusion_changes(matched: Matched) -> tuple[FusionChange, ...]:
    """Return the fusions that changed, the largest difference first."""
    launched = [
        _by_work(side.parts, work) for side, work in zip(matched.sides, matched.work, strict=True)
    ]
    base, head = (
        {work: each for work, each in own.items() if work not in other}
        for own, other in (launched, launched[::-1])
    )
    result = [
        _change(matched, [base[work] for work in mine], [head[work] for work in others])
        for mine, others in _groups(_common_time(matched, (base, head)))
    ]
    result.sort(key=lambda each: (-abs(each.change.delta_ns), str(each.base)))
    return tuple(result)


def _by_work(parts: Parts, work: Ints) -> dict[Work, _LaunchGroup]:
    rows = np.flatnonzero((parts.launch != NO_LAUNCH) & (work[parts.subject] != NO_WORK))
    order = rows[np.lexsort((work[parts.subject[rows]], parts.launch[rows]))]
    launch, number = parts.launch[order], work[parts.subject[order]]
    starts = np.flatnonzero(np.append(True, launch[1:] != launch[:-1])) if len(order) else order
    result: dict[Work, list[Ints]] = {}
    for own, numbers in zip(np.split(order, starts[1:]), np.split(number, starts[1:]), strict=True):
        if len(own):
            result.setdefault(frozenset(numbers.tolist()), []).append(own)
    return {of: _LaunchGroup(np.concatenate(rows), len(rows)) for of, rows in result.items()}


def _groups(taken: Mapping[tuple[Work, Work], int]) -> list[tuple[list[Work], list[Work]]]:
    """Group sets of ops by their common time: each with the set that shares most of it."""
    best: dict[tuple[int, Work], int] = {}
    for pair, time in taken.items():
        for own in enumerate(pair):
            best[own] = max(time, best.get(own, 0))
    groups: dict[tuple[int, Work], list[tuple[int, Work]]] = {}
    for (mine, other), time in taken.items():
        ends = (0, mine), (1, other)
        if time in (best[ends[0]], best[ends[1]]):
            old, new = (groups.setdefault(own, [own]) for own in ends)
            if old is not new:
                old += new
                groups |= dict.fromkeys(new, old)
    distinct = {id(group): group for group in groups.values()}
    result = [([w for at, w in g if at == 0], [w for at, w in g if at]) for g in distinct.values()]
    return [pair for pair in result if any(len(work) > 1 for side in pair for work in side)]


def _common_time(
    matched: Matched, sets: Sequence[Mapping[Work, _LaunchGroup]]
) -> dict[tuple[Work, Work], int]:
    """Return the common time of two sets' ops, of the side where it is less."""
    times = [
        {of: _times(side, work, each.parts) for of, each in own.items()}
        for side, work, own in zip(matched.sides, matched.work, sets, strict=True)
    ]
    sets_by_op: dict[int, list[Work]] = {}
    for of in sets[1]:
        for op in of:
            sets_by_op.setdefault(op, []).append(of)
    result: dict[tuple[Work, Work], int] = {}
    for mine in sets[0]:
        for other in {of for op in mine for of in sets_by_op.get(op, ())}:
            common = mine & other
            own = (
                sum(t[of][op] for op in common) for t, of in zip(times, (mine, other), strict=True)
            )
            if (time := min(own)) > 0:
                result[mine, other] = time
    return result


def _times(side: Side, work: Ints, parts: Ints) -> dict[int, int]:
    """Return the time of each op of a set of launches, of a mean step."""
    ops, times = work[side.parts.subject[parts]].tolist(), side.parts.duration_ns[parts].tolist()
    sums = sum_by_name(zip(ops, times, strict=True))
    return {op: ns // side.steps for op, ns in sums.items()}


def _change(matched: Matched, base: list[_LaunchGroup], head: list[_LaunchGroup]) -> FusionChange:
    samples = [
        _sample(side, launched) for side, launched in zip(matched.sides, (base, head), strict=True)
    ]
    counts = [sum(each.launches for each in side) for side in (base, head)]
    kernels = [
        sorted(
            (_fused_kernel(side.parts, each) for each in own),
            key=lambda f: (-f.duration_ns, str(f)),
        )
        for side, own in zip(matched.sides, (base, head), strict=True)
    ]
    change = change_of_all(samples[0], samples[1], (counts[0], counts[1]), [Account.DEVICE])
    pairs = tuple(not_fused(matched.sides[1], kernels[1]))
    return FusionChange(tuple(kernels[0]), tuple(kernels[1]), change, pairs)


def not_fused(side: Side, launched: Sequence[FusedKernel]) -> Iterator[NotFused]:
    """Yield the pairs of a side's kernels that pass a buffer on, where they were captured."""
    names = {name for each in launched for name in each.kernels}
    seen: set[NotFused] = set()
    for passed in (each for analysis in side.analyses for each in passed_buffers(analysis)):
        pair = (passed.writer.site.kernel, passed.reader.site.kernel)
        found = NotFused(*pair, passed.barrier, passed.reason)
        if names.issuperset(pair) and found not in seen:
            seen.add(found)
            yield found


def _sample(side: Side, launched: list[_LaunchGroup]) -> Sample:
    rows = np.concatenate([each.parts for each in launched])
    sums = sum_by(side.parts.step[rows], side.parts.duration_ns[rows], len(side.ranks_of_step))
    return side.sample(sums[:, np.newaxis])


def _fused_kernel(parts: Parts, launched: _LaunchGroup) -> FusedKernel:
    subjects = [parts.subjects[code] for code in np.unique(parts.subject[launched.parts]).tolist()]
    ops: Mapping[Subject, None] = dict.fromkeys(_op(each) for each in subjects)
    kernels = dict.fromkeys(each.kernel for each in subjects if each.kernel)
    return FusedKernel(
        kernels=tuple(sorted(kernels)),
        ops=tuple(sorted(ops, key=str)),
        duration_ns=int(parts.duration_ns[launched.parts].sum()),
        launches=launched.launches,
    )


def _op(subject: Subject) -> Subject:
    place = subject.file, subject.line, subject.function, subject.code
    return Subject(Account.DEVICE, *place, aten_op=subject.aten_op, phase=subject.phase)
