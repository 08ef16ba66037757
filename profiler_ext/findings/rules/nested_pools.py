"""The rule for max pools of several sizes on one tensor, side by side."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from profiler_ext.findings.facts import Facts, launches_by_function, location_of
from profiler_ext.findings.finding import Confidence, Figure
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, count_and_time
from profiler_ext.kineto.launch_shapes import launch_shapes
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

_POOLS = re.compile(r"aten::max_pool[123]d(_with_indices)?$")
_BEHIND = re.compile(r"aten::max_pool[123]d_with_indices_backward$")
_KERNEL = re.compile(r"max_?pool", re.IGNORECASE)
# A window of twice the size has four times the values; equal windows differ by less
_UNLIKE = 1.4


def _candidates(facts: Facts) -> Iterator[Candidate]:
    launches = facts.launches
    pooling = _rows(facts, _POOLS, Phase.FORWARD)
    behind = dict(launches_by_function(facts, _rows(facts, _BEHIND, Phase.BACKWARD)))
    for function, own in launches_by_function(facts, pooling):
        side_by_side = _side_by_side(facts, own)
        if not len(side_by_side):
            continue
        places = np.unique(facts.main_place[side_by_side]).tolist()
        modules = {facts.analysis.places[at].module for at in places}
        gradients = behind.get(function, own[:0])
        is_own = [facts.place(row).module in modules for row in gradients.tolist()]
        gradients = gradients[np.array(is_own, np.bool_)]
        every = np.union1d(side_by_side, gradients)
        yield Candidate(
            summary="max pools of several sizes run side by side",
            est_saving_ns=sum(
                facts.median_per_step(rows, _above_least(facts, rows))
                for rows in (side_by_side, gradients)
            ),
            confidence=Confidence.ESTIMATED,
            remedy="pools of the smallest size in a row (SPPF), if the stride is 1",
            location=location_of(facts.place(facts.longest(side_by_side))),
            evidence=(
                *count_and_time(facts, every),
                Figure(
                    "the longest takes as many times the shortest",
                    int(launches.duration_ns[side_by_side].max())
                    / int(launches.duration_ns[side_by_side].min()),
                ),
            ),
            launches=every,
        )


def _rows(facts: Facts, op: re.Pattern[str], phase: Phase) -> Ints:
    is_own = facts.of_op(lambda name: op.match(name) is not None)
    is_own &= facts.named(lambda name: _KERNEL.search(name) is not None)
    is_own &= facts.launches.scope.where(Scope.EAGER) & facts.launches.phase.where(phase)
    return np.flatnonzero(facts.in_steps(is_own & (facts.main_place >= 0)))


def _side_by_side(facts: Facts, pools: Ints) -> Ints:
    """Return the pools that run one after the other on as many blocks, some much longer."""
    launches = facts.launches
    order = np.argsort(launches.start_ns, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    pools = pools[np.argsort(rank[pools])]
    grid = launch_shapes(facts.analysis.recording.trace, launches.event[pools]).grid
    is_next = (np.diff(rank[pools]) == 1) & (grid.codes[1:] == grid.codes[:-1])
    is_known = np.array([bool(each) for each in grid.strings], np.bool_)[grid.codes]
    runs = np.split(pools, np.flatnonzero(~(is_next & is_known[1:])) + 1)
    unlike = [each for each in runs if len(each) > 1 and _are_unlike(launches.duration_ns[each])]
    return np.sort(np.concatenate([pools[:0], *unlike]))


def _are_unlike(duration_ns: Ints) -> bool:
    return bool(duration_ns.max() >= _UNLIKE * duration_ns.min())


def _above_least(facts: Facts, rows: Ints) -> Ints:
    """Return what each takes on the critical path above the shortest."""
    duration_ns = facts.launches.duration_ns[rows]
    least_ns = duration_ns.min(initial=duration_ns.max(initial=0))
    return facts.critical_ns(rows, 1 - least_ns / np.maximum(duration_ns, 1))


RULE = Rule(
    name="nested_pools",
    title="Max pools of several sizes side by side",
    means="A function runs two or more max pools one after the other with as many blocks, and the "
    "longest takes 1.4 times the shortest or more: pools of windows of several sizes, whose "
    "results have one size, as in spatial pyramid pooling (SPP).",
    because="A pool reads all values of its window for each of its results, 169 of 13 by 13. The "
    "maximum of maxima is a maximum: three pools of 5 by 5 in a row give those of 5, 9 and 13, and "
    "read 25 values each. Their backward reads as many.",
    remedy="Pool the result of the smaller pool again (`SPPF` of YOLOv5), where the stride is 1: "
    "windows of a and b in a row are one of a + b - 1.",
    saving="Time on the critical path of each pool above that of the shortest, forward and "
    "backward.",
    not_on_cpu=ON_CPU,
    judge=_candidates,
)
