"""The rule for powers that autocast computes in float32 between ops in half the size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profiler_ext.findings.autograd_nodes import with_backward
from profiler_ext.findings.facts import Facts, launches_by_line, location_of
from profiler_ext.findings.finding import Confidence
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, count_and_time
from profiler_ext.findings.rules.dtype_conversion import is_conversion
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

_POWER = "aten::pow"
# A product in bfloat16 and its backward move 18 bytes a number, the power and its casts 50
_SAVING = 0.64


def _candidates(facts: Facts) -> Iterator[Candidate]:
    launches = facts.launches
    is_own = facts.mainly(lambda place: place.aten_op == _POWER)
    is_own &= launches.scope.where(Scope.EAGER) & launches.phase.where(Phase.FORWARD)
    powers = np.flatnonzero(facts.in_steps(is_own))
    is_cast = facts.named(is_conversion)
    for own in launches_by_line(facts, powers):
        casts_back = _casts_back(facts, own)
        if not is_cast[own].any() or not len(casts_back):
            continue
        every = np.union1d(with_backward(facts, own), casts_back)
        saved_ns = facts.median_per_step(every, facts.critical_ns(every, _SAVING))
        yield Candidate(
            summary="autocast computes a power in float32, and casts to it and back",
            est_saving_ns=saved_ns,
            confidence=Confidence.ESTIMATED,
            remedy="x * x in place of x.pow(2), which stays in bfloat16",
            location=location_of(facts.place(facts.longest(own))),
            evidence=count_and_time(facts, every),
            launches=every,
        )


def _casts_back(facts: Facts, powers: Ints) -> Ints:
    """Return the launches right behind the powers that cast their results."""
    order = np.argsort(facts.launches.start_ns, kind="stable")
    after = np.roll(order, -1)[:-1]
    following = after[np.isin(order[:-1], powers)]
    is_cast = facts.in_steps(facts.named(is_conversion))[following]
    return np.setdiff1d(following[is_cast], powers)


RULE = Rule(
    name="float32_power",
    title="Powers that autocast computes in float32",
    means="Within `aten::pow` a kernel casts the operand to float32: `pow` and `**` are on "
    "autocast's list of ops that run in float32. The next kernel casts its result back.",
    because="Powers of large numbers overflow in float16, so that autocast casts to float32 before "
    "`pow`. Its result is in float32 as well, twice the bytes, and the next matrix product casts "
    "it back; so does the backward.",
    remedy="Write small whole powers as products (`x * x`): a product takes the dtype of its "
    "operands. In bfloat16, whose range is that of float32, nothing overflows that did not before; "
    "the result is rounded to bfloat16 a little earlier, as it is by the cast.",
    saving="0.64 of the time on the critical path of the power, its casts and their backward: a "
    "product and its backward move the rest.",
    not_on_cpu=ON_CPU,
    judge=_candidates,
)
