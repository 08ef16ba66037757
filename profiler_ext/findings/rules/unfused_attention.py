"""The rule for attention that runs as products and a softmax instead of one kernel."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, launches_by_line, location_of
from profiler_ext.findings.finding import Confidence
from profiler_ext.findings.rule import Candidate, Rule, count_and_time
from profiler_ext.records import events, vocabulary

_CALL = "scaled_dot_product_attention"
_PRODUCT = "bmm"
_KERNEL = "attention"
_PROJECTION = re.compile(r"\b(?:add)?mm\b")  # products with a weight may be at the same line
_FUSED_AWAY = 2 / 3


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    if not facts.on_device:
        return CannotJudge("the launches ran on the CPU")
    places = facts.analysis.places
    is_there = np.array([_CALL in (place.code or "") for place in places] or [False], np.bool_)
    rows = facts.in_steps(is_there[facts.main_place] & (facts.main_place >= 0))
    return _of_lines(facts, launches_by_line(facts, np.flatnonzero(rows)))


def _of_lines(facts: Facts, lines: Iterable[events.Ints]) -> Iterator[Candidate]:
    for launches in lines:
        ops = [facts.innermost_op(launch) for launch in launches.tolist()]
        products = launches[[_PRODUCT in op for op in ops]]
        phases = {facts.place(launch).phase for launch in products.tolist()}
        is_fused = any(_KERNEL in op for op in ops)
        if not is_fused and {vocabulary.Phase.FORWARD, vocabulary.Phase.BACKWARD} <= phases:
            yield _candidate(facts, launches[[not _PROJECTION.search(op) for op in ops]])


def _candidate(facts: Facts, launches: events.Ints) -> Candidate:
    critical_ns = facts.median_per_step(launches, facts.critical_ns(launches))
    return Candidate(
        summary="attention is not fused: matmuls and a softmax",
        est_saving_ns=int(_FUSED_AWAY * critical_ns),
        confidence=Confidence.ESTIMATED,
        remedy=(
            "torch.nn.attention.sdpa_kernel([...]) without MATH around the call: "
            "torch then says what rules out each fused backend (mask, dtype, "
            "dropout, strides)"
        ),
        location=location_of(facts.place(facts.longest(launches))),
        evidence=count_and_time(facts, launches),
        launches=launches,
    )


RULE = Rule(
    name="unfused_attention",
    title="Attention in several kernels",
    means="Forward and backward of a call of `scaled_dot_product_attention` run batched products "
    "and a softmax, whose results go through memory, and are on the critical path.",
    because="Torch has kernels that compute all of it at once, but uses none of them if the mask, "
    "the dtype, the strides or a setting forbid it; bfloat16 is then computed in float32. Torch "
    "does not warn, also if only the compiled model gets a mask.",
    remedy="`torch.nn.attention.sdpa_kernel` around the call, with all backends but `MATH`: torch "
    "then raises, and warns why each backend cannot be used.",
    saving="Two thirds of the launches at that line that are on the critical path: the arithmetic "
    "stays, but nothing of the size of the mask goes through memory. Inference is not judged: "
    "with one token at a time, products are as fast.",
    judge=_judge,
)
