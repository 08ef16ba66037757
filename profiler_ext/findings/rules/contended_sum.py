"""The rule for sums by index that wait for each other, because few places get most of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from profiler_ext.findings.facts import Facts, launches_by_line, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, count_and_time
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

_ADDS = re.compile(r"aten::(scatter_add|index_add|scatter_reduce|index_reduce)_?$")
_READS = re.compile(r"aten::(gather|index_select)(_out)?$")
_MEMORY = "at::native::"
# Adding reads and writes what reading by the same index writes once; atomics cost some more
_PASSES = 3
_MIN_RATIO = 6
_MIN_NS = 20_000


def _candidates(facts: Facts) -> Iterator[Candidate]:
    table = facts.launches
    is_own = facts.in_steps(table.scope.where(Scope.EAGER) & (facts.main_place >= 0))
    is_own &= table.phase.where(Phase.FORWARD, Phase.BACKWARD)
    is_own &= facts.named(lambda name: _MEMORY in name)
    is_sum = facts.of_op(lambda op: _ADDS.match(op) is not None)
    is_read = facts.of_op(lambda op: _READS.match(op) is not None)
    for own in launches_by_line(facts, np.flatnonzero(is_own & (is_sum | is_read))):
        sums, reads = own[is_sum[own]], own[is_read[own]]
        # One is the gradient of the other, of as many values
        is_gradient = table.phase.where(Phase.BACKWARD)
        is_pair = len(sums) == len(reads) and (is_gradient[sums] != is_gradient[reads]).all()
        if len(sums) and is_pair:
            yield from _candidate(facts, sums, reads)


def _candidate(facts: Facts, sums: Ints, reads: Ints) -> Iterator[Candidate]:
    duration_ns = facts.launches.duration_ns
    added_ns, read_ns = (int(np.median(duration_ns[each])) for each in (sums, reads))
    if added_ns < max(_MIN_RATIO * read_ns, _MIN_NS):
        return
    gone = 1 - _PASSES * read_ns / added_ns
    yield Candidate(
        summary="sums by index wait for each other: few places get most of them",
        est_saving_ns=facts.median_per_step(sums, facts.critical_ns(sums, gone)),
        confidence=Confidence.ESTIMATED,
        remedy="a product with one-hot rows where places are few; else sort by the index, then "
        "segment_reduce",
        location=location_of(facts.place(facts.longest(sums))),
        evidence=(
            *count_and_time(facts, sums),
            Figure("reading by the same index takes", read_ns, FigureUnit.NS),
            Figure("adding takes as many times of it", added_ns / max(read_ns, 1)),
        ),
        launches=sums,
    )


RULE = Rule(
    name="contended_sum",
    title="Sums by index that wait for each other",
    means="At a line, adding by an index (`scatter_add`, `index_add`, or the gradient of `gather` "
    "or `index_select`) takes six times as long or more as reading by the same index does: one is "
    "the gradient of the other, and moves as many values.",
    because="Values are added by atomic operations, and those for one place wait for each other. "
    "With a table of a few rows, or a few nodes with most of the edges, nearly all do. It is "
    "slower still in 16 bits, where the hardware adds pairs.",
    remedy="Of few places a product with one-hot rows adds on tensor cores. Sorted by the index, "
    "the values of a place are neighbours: `torch.segment_reduce`, or a sparse product by rows. A "
    "table that is indexed by a range needs no index: `expand`, whose gradient is a sum.",
    saving="Time of adding on the critical path beyond three times what reading takes.",
    not_on_cpu=ON_CPU,
    judge=_candidates,
)
