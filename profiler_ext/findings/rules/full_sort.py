"""The rule for sorts of which only the first values are read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.code_of_lines import first_values_of
from profiler_ext.findings.facts import CannotJudge, Facts, launches_by_line, location_of
from profiler_ext.findings.finding import Confidence
from profiler_ext.findings.groups import blocks_of, ops_of
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, count_and_time
from profiler_ext.records.events import flag_rows
from profiler_ext.records.vocabulary import Scope

_SORTS = re.compile(r"aten::(?:(?:arg|m)?sort|randperm)$")
_MAKERS = frozenset({"sort", "argsort", "msort", "randperm"})
# These sort all values and read two for each share
_QUANTILES = re.compile(r"aten::(?:nan)?quantile$")
# One block of a sort has more values than one of what reads the result
_FEW = 1 / 8
_SORT, _READS = "aten::sort", "aten::gather"
_PERMUTES = "aten::randperm"
# What a selection of few needs, of a sort's passes over all values
_SAVING = 2 / 3

_SELECT = "torch.topk(x, k), with largest=False for the smallest"
_SELECT_SHARES = (
    "torch.topk for shares near 0 or 1, else torch.kthvalue; or the quantiles of a sample "
    "(x[::64]), all rows in one call"
)
_DRAW = "torch.randint(n, (k,)), if a number may be drawn twice; it draws no more than k"


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    return (*_candidates(facts), *_of_shares(facts))


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
        if place.line in first_values_of(codes, _MAKERS):
            is_drawn = place.aten_op == _PERMUTES
            yield Candidate(
                summary=f"all values are {'permuted' if is_drawn else 'sorted'}, and the first of "
                "them are read",
                est_saving_ns=int(_SAVING * facts.removed_per_step_ns(own)),
                confidence=Confidence.ESTIMATED,
                remedy=_DRAW if is_drawn else _SELECT,
                location=location_of(place),
                evidence=count_and_time(facts, own),
                launches=own,
            )


def _of_shares(facts: Facts) -> Iterator[Candidate]:
    """Yield the quantiles that sort all values and read few, by the blocks of both kernels."""
    is_own = facts.mainly(lambda place: _QUANTILES.match(place.aten_op or "") is not None)
    every = np.flatnonzero(facts.in_steps(is_own & facts.launches.scope.where(Scope.EAGER)))
    for own in launches_by_line(facts, every):
        ops, blocks = ops_of(facts, own), blocks_of(facts, own)
        sorts, reads = (flag_rows(ops, name.__eq__) for name in (_SORT, _READS))
        most_read = blocks[reads].max(initial=0)
        if 0 < most_read <= _FEW * blocks[sorts].max(initial=0):
            yield Candidate(
                summary="all values are sorted for a few quantiles of them",
                est_saving_ns=int(_SAVING * facts.removed_per_step_ns(own)),
                confidence=Confidence.ESTIMATED,
                remedy=_SELECT_SHARES,
                location=location_of(facts.place(int(own[0]))),
                evidence=count_and_time(facts, own),
                launches=own,
            )


RULE = Rule(
    name="full_sort",
    title="Sorts of which only the first values are read",
    means="A line sorts (`sort`, `argsort`) or permutes (`randperm`), and by the text of it and of "
    "later lines of the function only the first or last values are read: `[..., :k]`, `[-k:]`, "
    "`[:, 0]`. `quantile` sorts all values, too; it counts where it reads few of them: the kernel "
    "that does has at most an eighth of the blocks of the sort.",
    because="A sort passes several times over all values and their indices, and writes all of "
    "them, and a permutation is the order of random numbers that are sorted. Selecting the "
    "largest few reads the values a few times and writes those.",
    remedy="`torch.topk(x, k)`; `largest=False` for nearest neighbours, `max` or `min` for one. "
    "`torch.randint` in place of the first of a permutation, where a few may repeat. For quantiles "
    "`torch.topk` where they are near an end, else `torch.kthvalue`; or those of a sample.",
    saving="Two thirds of how much shorter the step would be without the sort, for quantiles "
    "without all that they launch.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
