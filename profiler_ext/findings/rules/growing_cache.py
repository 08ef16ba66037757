"""The rule for caches that grow by ``torch.cat``, which copies them for each token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, launches_by_line, location_of
from profiler_ext.findings.finding import Confidence
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, count_and_time
from profiler_ext.findings.rules.moved_data import appends
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase

_CAT = "aten::cat"
_NATIVE = "at::native::"
# The values of a step are smaller than what is copied by so much
_MUCH_LARGER = 8


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    if facts.in_steps(facts.launches.phase.where(Phase.BACKWARD)).any():
        return ()
    cats = facts.in_steps(facts.of_op(_CAT.__eq__))
    others = np.flatnonzero(facts.in_steps(facts.named(lambda name: _NATIVE in name)) & ~cats)
    if not len(others):
        return ()
    usual_ns = float(np.median(facts.launches.duration_ns[others]))
    return _of_lines(facts, np.flatnonzero(cats), usual_ns)


def _of_lines(facts: Facts, cats: Ints, usual_ns: float) -> Iterator[Candidate]:
    for launches in launches_by_line(facts, cats):
        typical_ns = float(np.median(facts.launches.duration_ns[launches]))
        is_repeated = facts.launches_per_step(launches) > 1
        if is_repeated and typical_ns >= _MUCH_LARGER * usual_ns and appends(facts, launches):
            yield _candidate(facts, launches)


def _candidate(facts: Facts, launches: Ints) -> Candidate:
    return Candidate(
        summary="torch.cat copies a cache to append to it",
        est_saving_ns=facts.median_per_step(launches, facts.critical_ns(launches)),
        confidence=Confidence.ESTIMATED,
        remedy="a buffer allocated once, into which each call writes its part",
        location=location_of(facts.place(int(launches[0]))),
        evidence=count_and_time(facts, launches),
        launches=launches,
    )


RULE = Rule(
    name="growing_cache",
    title="Caches that grow by copying",
    means="In inference, `torch.cat` at a line copies far more than the other elementwise kernels "
    "of the step touch, several times a step, and the line assigns the result to a name that it "
    "joins (`keys = torch.cat((keys, k), 2)`).",
    because="`torch.cat` makes a new tensor and copies all of the old one into it. Appending the "
    "keys and values of one token copies those of all tokens before it.",
    remedy="A cache of the full length, allocated once: `cache[:, :, position] = new` or "
    '`index_copy_` (transformers: `cache_implementation="static"`).',
    saving="Time of these copies on the critical path: what is new in them is little.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
