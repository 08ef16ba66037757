"""The rule for keys and values that are copied for each head of the queries."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from profiler_ext.findings.autograd_nodes import with_backward
from profiler_ext.findings.facts import CannotJudge, Facts, launches_by_function
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, removal
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

_REPEATS = re.compile(r"aten::(repeat_interleave|repeat|reshape|clone|contiguous)$")
_ASKS = re.compile(r"\.repeat\(|repeat_interleave\(")
_EXPANDS = "repeat_kv"  # of transformers and of what copies it: expand, then reshape
_COPIES = "aten::copy_"
_SUMS = "aten::sum"  # the gradient of what is repeated
_ATTENDS = re.compile(r"attention")
_REMEDY = (
    "F.scaled_dot_product_attention(..., enable_gqa=True), which takes fewer heads of keys and "
    "values"
)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    eager = facts.launches.scope.where(Scope.EAGER)
    is_copy = facts.of_op(_COPIES.__eq__) & facts.mainly(_is_repeat) & eager
    copies = np.flatnonzero(facts.in_steps(is_copy))
    read = copies[_are_attended(facts, copies)] if len(copies) else copies
    return [_candidate(facts, own) for _, own in launches_by_function(facts, read)]


def _is_repeat(place: Place) -> bool:
    asks = _ASKS.search(place.code or "") or place.function == _EXPANDS
    is_forward = place.phase in (Phase.FORWARD, Phase.RECOMPUTE)
    return bool(asks) and is_forward and _REPEATS.match(place.aten_op or "") is not None


def _are_attended(facts: Facts, copies: Ints) -> list[bool]:
    """Tell of each copy whether attention is the next that runs but copies."""
    launches = facts.launches
    others = np.flatnonzero(facts.in_steps(~facts.of_op(_COPIES.__eq__)))
    others = others[np.argsort(launches.start_ns[others], kind="stable")]
    at = np.searchsorted(launches.start_ns[others], launches.start_ns[copies])
    following = np.append(others, -1)[at].tolist()
    return [row >= 0 and bool(_ATTENDS.search(facts.innermost_op(row))) for row in following]


def _candidate(facts: Facts, copies: Ints) -> Candidate:
    place = facts.place(int(copies[0]))
    is_sum = facts.of_op(_SUMS.__eq__) & facts.launches.phase.where(Phase.BACKWARD)
    is_sum &= facts.mainly(
        lambda other: (other.file, other.function) == (place.file, place.function)
    )
    sums = np.flatnonzero(facts.in_steps(is_sum))
    sums = sums if len(sums) <= len(copies) else sums[:0]
    launches = np.union1d(with_backward(facts, copies), sums)
    summary = "keys and values are copied for each head"
    return removal(facts, launches, summary, _REMEDY, with_python=True)


RULE = Rule(
    name="repeated_heads",
    title="Keys and values repeated for all heads",
    means="A line repeats a tensor (`repeat_interleave`, `repeat`, or the `repeat_kv` of many "
    "models), and attention is what runs next.",
    because="In grouped-query attention several heads of the queries share a head of keys and "
    "values. Repeated, these are copied four or eight times, read as often by the kernel, and "
    "their gradients are summed again.",
    remedy="`F.scaled_dot_product_attention(q, k, v, enable_gqa=True)`: the fused kernels read "
    "shared heads in place.",
    saving="Time of the copies, and of their backward, which sums gradients; where the "
    "CPU is behind, how much shorter the step is in a replay without them, and without the views "
    "and the Python code before each.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
