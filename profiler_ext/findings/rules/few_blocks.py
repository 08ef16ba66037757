"""The rule for long kernels that leave most of the device's multiprocessors without work."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, launches_by_line, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.groups import blocks_of, multiprocessors
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, count_and_time
from profiler_ext.findings.rules.slow_op import slow_scans
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Scope

_NATIVE = "at::native::"
# With a block on one in four or fewer, three quarters of the device have no work
_MAX_PART = 0.25
_MIN_NS = 100_000  # a shorter kernel has too little to do for all of them
_MIN_FRACTION = 0.05
_NORMALISES = re.compile(r"aten::native_group_norm")
_REMEDY = "reduce in two steps: parts of it by many blocks (reshape), then their results"
_OF_NORMS = "more groups or a larger batch; else var_mean of x.unflatten, then x * scale + shift"


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    if not (count := multiprocessors(facts)):
        return CannotJudge("the trace does not tell how many multiprocessors the device has")
    return _candidates(facts, count)


def _candidates(facts: Facts, count: int) -> Iterator[Candidate]:
    table = facts.launches
    is_own = table.scope.where(Scope.EAGER) & facts.named(lambda name: _NATIVE in name)
    is_own &= (table.duration_ns >= _MIN_NS) & (facts.main_place >= 0)
    rows = np.setdiff1d(np.flatnonzero(facts.in_steps(is_own)), slow_scans(facts))
    blocks = blocks_of(facts, rows)
    is_few = (blocks > 0) & (blocks <= _MAX_PART * count)
    rows, blocks = rows[is_few], blocks[is_few]
    for own in launches_by_line(facts, rows):
        yield from _candidate(facts, own, blocks[np.isin(rows, own)], count)


def _candidate(facts: Facts, own: Ints, blocks: Ints, count: int) -> Iterator[Candidate]:
    spent_ns = facts.median_per_step(own, facts.critical_ns(own))
    if not spent_ns or spent_ns < _MIN_FRACTION * facts.training.step_ns:
        return
    longest = facts.longest(own)
    is_norm = _NORMALISES.match(facts.innermost_op(longest)) is not None
    name = facts.launches.kernel_or_name[longest]
    yield Candidate(
        summary="a long kernel keeps few of the device's multiprocessors busy",
        est_saving_ns=facts.median_per_step(own, facts.critical_ns(own, 1 - blocks / count)),
        confidence=Confidence.UPPER_BOUND,
        remedy=_OF_NORMS if is_norm else _REMEDY,
        location=location_of(facts.place(longest), name, facts.compile_id(longest)),
        evidence=(
            *count_and_time(facts, own),
            Figure("that sets the pace", spent_ns, FigureUnit.NS),
            Figure("blocks of the longest", int(blocks[own == longest][0])),
            Figure("multiprocessors of the device", count),
        ),
        launches=own,
    )


RULE = Rule(
    name="few_blocks",
    title="A long kernel with few blocks",
    means="Kernels of torch's own ops run for 100 us or longer with no more blocks than a quarter "
    "of the device's multiprocessors, and at a line they take 5% of a step or more. The trace has "
    "the blocks of each kernel, and the multiprocessors of the device. Scans that `slow_op` has "
    "are left out.",
    because="A block runs on one multiprocessor. Group norm has a block for each group of each "
    "sample, softmax and top-k one for each row: with few groups or rows, most of the "
    "device waits for the rest, and its bandwidth is not reached.",
    remedy="Give the op more rows or groups at once (a larger batch), or compute it in two steps: "
    "reductions of parts, then of their results. `torch.var_mean` and `sum` divide long rows among "
    "many blocks by themselves, and so do reductions that `torch.compile` generates.",
    saving="Time of these kernels on the critical path, less the part that as many blocks as "
    "multiprocessors would take for the same work. An upper bound: with all of them busy, memory "
    "may be what it waits for.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
