"""The rule for sorts and selections of which little is read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from profiler_ext.findings.code_of_lines import first_values_of
from profiler_ext.findings.facts import CannotJudge, Facts, launches_by_line, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.groups import blocks_of, ops_of
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, count_and_time
from profiler_ext.records.analysis import Place
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
_SELECTS, _COPIES = "aten::topk", "aten::copy_"
_SELECTED = re.compile(r"(?:^|,)\s*(?P<name>\w+)\s*=[^=].*\btopk\(")
_COUNT = "(x > x.gather(dim, label)).sum(dim) < k: fewer than k values are larger"
# What a selection of few needs, of a sort's passes over all values
_SAVING = 2 / 3

_SELECT = "torch.topk(x, k), with largest=False for the smallest"
_SELECT_SHARES = (
    "torch.topk for shares near 0 or 1, else torch.kthvalue; or the quantiles of a sample "
    "(x[::64]), all rows in one call"
)
_DRAW = "torch.randint(n, (k,)), if a number may be drawn twice; it draws no more than k"


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    return (*_candidates(facts), *_of_shares(facts), *_of_ranks(facts))


def _candidates(facts: Facts) -> Iterator[Candidate]:
    is_sort = facts.mainly(lambda place: _SORTS.match(place.aten_op or "") is not None)
    sorts = np.flatnonzero(facts.in_steps(is_sort & facts.launches.scope.where(Scope.EAGER)))
    for own in launches_by_line(facts, sorts):
        place = facts.place(int(own[0]))
        if place.line in first_values_of(_codes_around(facts, place), _MAKERS):
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


def _codes_around(facts: Facts, place: Place) -> dict[int, str]:
    """Return the lines of a place's function that launch anything, with their text."""
    return {
        each.line: each.code
        for each in facts.analysis.places
        if (each.file, each.function) == (place.file, place.function)
        and each.line is not None
        and each.code
    }


def _of_ranks(facts: Facts) -> Iterator[Candidate]:
    """Yield selections that only tell whether a label is among the first few."""
    is_own = facts.mainly(lambda place: place.aten_op == _SELECTS)
    every = np.flatnonzero(facts.in_steps(is_own & facts.launches.scope.where(Scope.EAGER)))
    for own in launches_by_line(facts, every):
        place = facts.place(int(own[0]))
        is_copy = flag_rows(ops_of(facts, own), _COPIES.__eq__)
        copied_ns, selected_ns = (
            facts.median_per_step(rows, facts.launches.duration_ns[rows])
            for rows in (own[is_copy], own[~is_copy])
        )
        # Comparing and counting pass over all values about as often as the copy does, which goes
        if 0 < copied_ns < selected_ns and _is_compared(_codes_around(facts, place), place.line):
            yield Candidate(
                summary="topk selects values only to compare them with labels",
                est_saving_ns=facts.removed_per_step_ns(own[~is_copy]),
                confidence=Confidence.ESTIMATED,
                remedy=_COUNT,
                location=location_of(place),
                evidence=(
                    *count_and_time(facts, own),
                    Figure("a copy of all values takes", copied_ns, FigureUnit.NS),
                ),
                launches=own,
            )


def _is_compared(codes: Mapping[int, str], line: int | None) -> bool:
    """Tell whether what a line selects is compared with something, by the text of both."""
    found = _SELECTED.search(codes.get(line or 0, ""))
    if found is None:
        return False
    name = rf"(?<![\w.]){re.escape(found['name'])}\b"
    compared = re.compile(rf"{name}\s*==|{name}\.eq\(|(?:==\s*|\.eq\(){name}")
    return any(compared.search(code) for at, code in codes.items() if at > (line or 0))


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
    "that does has at most an eighth of the blocks of the sort. Or what `topk` selects is compared "
    "with labels, by the text of the lines, and selecting takes longer than the copy that `topk` "
    "made of all values, because they are strided.",
    because="A sort passes several times over all values and their indices, and writes all of "
    "them, and a permutation is the order of random numbers that are sorted. Selecting the "
    "largest few reads the values a few times and writes those. `topk` has a block for each slice, "
    "which is slow for many short ones.",
    remedy="`torch.topk(x, k)`; `largest=False` for nearest neighbours, `max` or `min` for one. "
    "`torch.randint` in place of the first of a permutation, where a few may repeat. For quantiles "
    "`torch.topk` where they are near an end, else `torch.kthvalue`; or those of a sample. A "
    "label is among the first k where fewer than k values are larger than its own; equal values "
    "count for it.",
    saving="Two thirds of how much shorter the step would be without the sort, for quantiles "
    "without all that they launch. Of labels that are sought all but the copy: comparing and "
    "counting are taken to last as long.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
