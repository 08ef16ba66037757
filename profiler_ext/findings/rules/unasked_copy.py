"""Owns the rule of launches that only copy a tensor, at lines that ask for no copy."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from profiler_ext.findings.facts import Facts, Lacking, where_of
from profiler_ext.findings.finding import Figure, FigureUnit, Sureness
from profiler_ext.findings.rule import Candidate, Rule
from profiler_ext.records import Ints, Place

_COPIES = re.compile(r"aten::(clone|contiguous|reshape|flatten)|aten\.clone\..*")
_COPYING = re.compile(r"direct_copy_kernel|Memcpy DtoD|triton_\w*clone")
_ASKS = re.compile(r"\.(contiguous|clone|copy_?|deepcopy)\(|memory_format=")


def _judge(facts: Facts) -> Iterable[Candidate] | Lacking:
    if not facts.on_device:
        return Lacking("the launches ran on the CPU, whose kernels do more than one thing")
    rows = facts.wholly(_is_unasked) & facts.named(_copies)
    launches = np.flatnonzero(facts.in_steps(rows))
    return (_candidate(facts, launches),) if len(launches) else ()


def _copies(name: str) -> bool:
    return _COPYING.search(name) is not None


def _is_unasked(place: Place) -> bool:
    """Tell whether a place copies at a line whose text is known and asks for no copy."""
    if place.aten_op is None or place.code is None:
        return False
    return _COPIES.fullmatch(place.aten_op) is not None and not _ASKS.search(place.code)


def _candidate(facts: Facts, launches: Ints) -> Candidate:
    longest = facts.longest(launches)
    duration = facts.launches.duration_ns[launches]
    return Candidate(
        what="launches only copy a tensor into another layout, at lines that ask for no copy",
        at_stake_ns=facts.of_usual_step(launches, facts.paced_ns(launches)),
        sureness=Sureness.UPPER_BOUND,
        remedy="keep the layout that the next op takes: transpose where it can be a view, or "
        "compile the module, which fuses the copy into what is around it",
        where=where_of(facts.place(longest)),
        why=(
            Figure("copies a step", facts.count_in_usual_step(launches)),
            Figure("they take", facts.of_usual_step(launches, duration), FigureUnit.NS),
        ),
        launches=launches,
    )


RULE = Rule(
    name="unasked_copy",
    title="Copies that nobody asked for",
    means="Launches that copy a tensor into another layout and do nothing else, at lines whose "
    "text has neither `.contiguous()` nor `.clone()`.",
    because="`reshape` and `flatten` of a transposed tensor cannot be views and copy; so do ops "
    "that take contiguous operands only.",
    remedy="Choose the layout when the tensor is made, or let the op after it take the strides; a "
    "compiled module fuses such a copy into its neighbours.",
    stake="The time of these launches where they set the pace. It is an upper bound, since an op "
    "that reads another layout may be slower.",
    judge=_judge,
)
