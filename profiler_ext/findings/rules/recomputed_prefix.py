"""The rule for generation that runs the model over all tokens so far, for each new one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, shared_line
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.groups import blocks_of
from profiler_ext.findings.rule import Candidate, Rule
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase

_ATTENDS = re.compile(r"attention|softmax")
_MIN_GROWTHS = 2  # in a row: three calls, each with as many blocks more
_MOST_NEW = 1 / 8  # of the tokens of a call
_SUMMARY = "each call of the model runs over all tokens so far, not the new ones alone"
_REMEDY = "a cache of keys and values (use_cache=True), so that a call takes new tokens alone"
_MAX_JUMPS = 1
_MIN_KERNELS = 3  # kernels that grow alike


@dataclass(frozen=True, slots=True)
class _Series:
    """A kernel whose number of blocks grows by the same amount from call to call."""

    calls: Ints  # the first launch of each call that has more blocks than the one before
    ends: Ints  # the first launch of the call after it, -1 for the last one
    prefix: int  # tokens of the longest call for each new one


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    phase = facts.launches.phase
    if not facts.on_device:
        return CannotJudge("the launches ran on the CPU")
    attends = facts.of_op(lambda op: _ATTENDS.search(op) is not None)
    if facts.in_steps(phase.where(Phase.BACKWARD)).any() or not attends.any():
        return ()
    alike: dict[int, list[_Series]] = defaultdict(list)
    for series in _growing(facts):
        alike[series.prefix].append(series)
    most = max(alike.values(), key=len, default=[])
    if len(most) >= _MIN_KERNELS:
        return (_candidate(facts, most),)
    return _of_steps(facts)


def _of_steps(facts: Facts) -> Iterable[Candidate]:
    """Judge steps that are one call each, by the tokens that each was given."""
    kind = facts.kind_of_steps
    lengths = [] if kind is None else [calls[-1].length for calls in kind.calls if len(calls) == 1]
    grown = [now - last for last, now in pairwise(lengths)]
    # Before the recording, and where it began again, steps were not counted
    is_growing = len(grown) >= _MIN_GROWTHS and len(grown) - grown.count(1) <= _MAX_JUMPS
    is_growing &= 1 in grown and min(grown, default=0) > 0
    if kind is None or not is_growing or max(lengths) < 1 / _MOST_NEW:
        return ()
    launches = np.flatnonzero(facts.in_steps(facts.main_place >= 0))
    spent_ns = facts.median_per_step(launches, facts.critical_ns(launches))
    most_ns = max(facts.training.step_ns - facts.training.cpu_ns, 0)
    return (
        Candidate(
            summary=_SUMMARY,
            est_saving_ns=min(int(spent_ns * (1 - 1 / max(lengths))), most_ns),
            confidence=Confidence.ESTIMATED,
            remedy=_REMEDY,
            location=shared_line(facts, launches),
            evidence=(
                Figure("tokens for each new one", max(lengths), FigureUnit.TIMES),
                Figure("these calls take", spent_ns, FigureUnit.NS),
                Figure("CPU time of a step", facts.training.cpu_ns, FigureUnit.NS),
            ),
            launches=launches,
        ),
    )


def _growing(facts: Facts) -> Iterator[_Series]:
    """Find the kernels that grow by the same number of blocks from call to call."""
    rows = np.flatnonzero(facts.in_steps(facts.main_place >= 0))
    rows = rows[np.argsort(facts.launches.start_ns[rows], kind="stable")]
    blocks = blocks_of(facts, rows)
    name, place = facts.launches.name.codes[rows], facts.main_place[rows]
    _, key = np.unique(np.stack([name, place]), axis=1, return_inverse=True)
    order = np.argsort(key.ravel(), kind="stable")
    bounds = np.flatnonzero(np.diff(key.ravel()[order])) + 1
    for own in np.split(order, bounds):
        series = _series(rows[own], blocks[own])
        if series is not None:
            yield series


def _series(launches: Ints, blocks: Ints) -> _Series | None:
    """Return the calls in which a kernel grows; none where it does not, or unevenly."""
    begins = np.flatnonzero(np.diff(blocks, prepend=-1))
    sizes = blocks[begins]
    grown = np.diff(sizes)
    positive = np.flatnonzero(grown > 0)
    in_a_row = [len(run) for run in np.split(positive, np.flatnonzero(np.diff(positive) > 1) + 1)]
    if max(in_a_row) < _MIN_GROWTHS or len(set(grown[positive].tolist())) > 1:
        return None
    added, largest = int(grown[positive[0]]), int(sizes.max())
    if added > _MOST_NEW * largest:
        return None
    firsts = np.append(launches[begins], -1)
    return _Series(firsts[positive + 1], firsts[positive + 2], round(largest / added))


def _candidate(facts: Facts, alike: list[_Series]) -> Candidate:
    launches = facts.launches
    first = min(alike, key=lambda each: int(launches.start_ns[each.calls[0]]))
    calls = zip(first.calls.tolist(), first.ends.tolist(), strict=True)
    repeated = np.concatenate([_launches_of(facts, *each) for each in calls])
    spent_ns = facts.median_per_step(repeated, facts.critical_ns(repeated))
    # The CPU launches as many kernels for the new tokens alone
    most_ns = max(facts.training.step_ns - facts.training.cpu_ns, 0)
    return Candidate(
        summary=_SUMMARY,
        est_saving_ns=min(spent_ns, most_ns),
        confidence=Confidence.ESTIMATED,
        remedy=_REMEDY,
        location=shared_line(facts, np.array([each.calls[0] for each in alike])),
        evidence=(
            Figure("calls a step that repeat tokens", facts.launches_per_step(first.calls)),
            Figure("tokens for each new one", first.prefix, FigureUnit.TIMES),
            Figure("these calls take", spent_ns, FigureUnit.NS),
            Figure("CPU time of a step", facts.training.cpu_ns, FigureUnit.NS),
        ),
        launches=repeated,
    )


def _launches_of(facts: Facts, call: int, following: int) -> Ints:
    """Return the launches of a call: to the one after it, or to the end of its step."""
    launches = facts.launches
    own = launches.step.filled(-1) == launches.step[call]
    own &= launches.start_ns >= launches.start_ns[call]
    if following >= 0:
        own &= launches.start_ns < launches.start_ns[following]
    return np.flatnonzero(own)


RULE = Rule(
    name="recomputed_prefix",
    title="Generation without a cache of keys and values",
    means="In inference, kernels get the same number of blocks more from one call of the model to "
    "the next: each call runs over all tokens so far, and few are new. Or each step is one call, "
    "with one token more than the step before.",
    because="Keys and values of earlier tokens do not change in a causal model. Without a cache "
    "they are computed again for each new token, and so is everything else.",
    remedy="A cache of keys and values: `use_cache=True` with `generate()`, or a model that takes "
    "the new tokens with `past_key_values`.",
    saving="Time on the critical path of the calls that repeat tokens; at most what the step takes "
    "longer than its CPU, which launches as many kernels for new tokens alone.",
    judge=_judge,
)
