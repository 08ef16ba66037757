"""The rule for gradients of indexing, which sort the indices first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, launches_by_line, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, count_and_time
from profiler_ext.findings.waiting import PUTS
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

_LOOKS_UP = "aten::index"


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    launches = facts.launches
    is_put = facts.mainly(lambda place: place.aten_op in PUTS)
    is_put &= launches.phase.where(Phase.BACKWARD) & launches.scope.where(Scope.EAGER)
    return _of_lines(facts, np.flatnonzero(facts.in_steps(is_put)))


def _of_lines(facts: Facts, puts: Ints) -> Iterator[Candidate]:
    is_lookup = facts.mainly(lambda place: place.aten_op == _LOOKS_UP)
    lookups = list(launches_by_line(facts, np.flatnonzero(facts.in_steps(is_lookup))))
    for own in launches_by_line(facts, puts):
        place = facts.place(int(own[0]))
        here = [
            each
            for each in lookups
            if (at := facts.place(int(each[0]))) and (at.file, at.line) == (place.file, place.line)
        ]
        if here and not _is_mask(facts, here[0]):
            yield _candidate(facts, own, here[0])


def _is_mask(facts: Facts, lookups: Ints) -> bool:
    """Tell whether what is looked up by are truth values, of which torch makes indices."""
    return any("nonzero" in facts.innermost_op(row) for row in lookups.tolist())


def _candidate(facts: Facts, puts: Ints, lookups: Ints) -> Candidate:
    # Adding rows to others moves about what looking them up moved
    then_ns = facts.median_per_step(lookups, facts.critical_ns(lookups))
    now_ns = facts.median_per_step(puts, facts.critical_ns(puts))
    read_ns = facts.median_per_step(lookups, facts.launches.duration_ns[lookups])
    return Candidate(
        summary="gradients of indexing sort the indices, to add in a fixed order",
        est_saving_ns=max(now_ns - then_ns, 0),
        confidence=Confidence.ESTIMATED,
        remedy=(
            "x.index_select(0, index) in place of x[index]; or F.embedding(index, x): one kernel "
            "adds their gradients"
        ),
        location=location_of(facts.place(facts.longest(puts))),
        evidence=(
            *count_and_time(facts, puts),
            Figure("looking up takes", read_ns, FigureUnit.NS),
        ),
        launches=puts,
    )


RULE = Rule(
    name="indexing_gradient",
    title="Gradients of indexing that sort",
    means="The backward of an eager `x[index]` runs `index_put_` with `accumulate=True`: a sort of "
    "the indices, and a kernel that adds the rows of equal ones.",
    because="The gradient of indexing has to add where an index occurs twice. Torch sorts all "
    "indices for that, with ten or more launches, whatever the size. `index_select` and "
    "`F.embedding` add with atomic operations, or have kernels of their own.",
    remedy="`x.index_select(0, index)` or `F.embedding(index, x)` where one dimension is indexed; "
    "`torch.gather` where each row has an index of its own. Their sums may differ in the last bits "
    "from run to run.",
    saving="Time of those launches on the critical path beyond what the lookup itself takes at "
    "that line: adding moves about as many bytes. Masks of truth values, whose indices are counted "
    "first, are not judged.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
