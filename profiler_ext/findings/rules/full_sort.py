"""The rule for sorts of which only the first values are read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.code_of_lines import first_values_of
from profiler_ext.findings.facts import CannotJudge, Facts, launches_by_line, location_of
from profiler_ext.findings.finding import Confidence
from profiler_ext.findings.rule import Candidate, Rule, count_and_time
from profiler_ext.records.vocabulary import Scope

_SORTS = re.compile(r"aten::(arg|msort)?sort$")
# What a selection of few needs, of a sort's passes over all values
_SAVING = 2 / 3


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    if not facts.on_device:
        return CannotJudge("the launches ran on the CPU")
    return _candidates(facts)


def _candidates(facts: Facts) -> Iterator[Candidate]:
    is_sort = facts.mainly(lambda place: _SORTS.match(place.aten_op or "") is not None)
    sorts = np.flatnonzero(facts.in_steps(is_sort & facts.launches.scope.where(Scope.EAGER)))
    for own in launches_by_line(facts, sorts):
        place = facts.place(int(own[0]))
        codes = {
            each.line: each.code
            for each in facts.analysis.places
            if (each.file, each.function) == (place.file, place.function)
            and each.line is not None
            and each.code
        }
        if place.line in first_values_of(codes, frozenset({"sort", "argsort"})):
            yield Candidate(
                summary="all values are sorted, and the first of them are read",
                est_saving_ns=int(_SAVING * facts.removed_per_step_ns(own)),
                confidence=Confidence.ESTIMATED,
                remedy="torch.topk(x, k), with largest=False for the smallest",
                location=location_of(place),
                evidence=count_and_time(facts, own),
                launches=own,
            )


RULE = Rule(
    name="full_sort",
    title="Sorts of which only the first values are read",
    means="A line sorts (`sort`, `argsort`), and by the text of it or of a later line of the "
    "function only the first values are read: `[..., :k]`.",
    because="A sort passes several times over all values and their indices, and writes all of "
    "them. Selecting the largest few reads the values a few times and writes those.",
    remedy="`torch.topk(x, k)`; `largest=False` for nearest neighbours, `max` or `min` for one.",
    saving="Two thirds of how much shorter the step would be without the sort.",
    judge=_judge,
)
