"""The rule for decoding whose time goes into reading the weights for few tokens."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit, SavingPer
from profiler_ext.findings.rule import Candidate, Rule
from profiler_ext.records.events import Ints
from profiler_ext.rooflines.compute_units import Bound

_MIN_FRACTION = 0.5  # of the step that such products take
_MIN_KNOWN = 0.8  # of the products' time whose bytes are known


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    if not facts.is_decoding:
        return ()
    rooflines = facts.rooflines
    products = np.flatnonzero(facts.in_steps(rooflines.is_product))
    known = products[~np.ma.getmaskarray(rooflines.roofline_ns)[products]]
    duration_ns = facts.launches.duration_ns
    if duration_ns[known].sum() < _MIN_KNOWN * duration_ns[products].sum():
        return CannotJudge("the bytes of products are not known; --shapes records them")
    reads = known[rooflines.bound.where(Bound.MEMORY)[known]]
    spent_ns = facts.median_per_step(reads, facts.critical_ns(reads))
    if not spent_ns or spent_ns < _MIN_FRACTION * facts.training.step_ns:
        return ()
    return (_candidate(facts, reads, spent_ns),)


def _candidate(facts: Facts, reads: Ints, spent_ns: int) -> Candidate:
    rooflines, kind = facts.rooflines, facts.kind_of_steps
    assert kind is not None
    every = np.flatnonzero(facts.in_steps(~np.ma.getmaskarray(rooflines.roofline_ns)))
    best_ns = facts.median_per_step(every, rooflines.roofline_ns.filled(0)[every])
    moved = facts.median_per_step(reads, rooflines.bytes.filled(0)[reads])
    return Candidate(
        summary="weights are read for few tokens",
        est_saving_ns=0,
        saving_per=SavingPer.UNKNOWN,
        confidence=Confidence.ESTIMATED,
        remedy=(
            "more sequences at a time, which the same reads serve; weights of 8 or 4 bits, or "
            "speculative decoding, where tokens have to come sooner (the first changes numerics)"
        ),
        location=location_of(facts.place(facts.longest(reads))),
        evidence=(
            Figure("tokens a step", kind.tokens),
            Figure("products that read weights take", spent_ns, FigureUnit.NS),
            Figure("they move", moved, FigureUnit.BYTES),
            Figure("tokens a second", round(1e9 * kind.tokens / max(facts.training.step_ns, 1))),
            Figure("at the device's bandwidth", round(1e9 * kind.tokens / max(best_ns, 1))),
        ),
    )


RULE = Rule(
    name="small_batch",
    title="Decoding that reads all weights for few tokens",
    means="In steps that generate tokens, matrix products that are bound by the device's bandwidth "
    "take half of the step or more.",
    because="Each token needs all weights of the model. With few sequences a product reads far "
    "more than it computes, and takes as long for one token as for tens.",
    remedy="Decode more sequences at a time (continuous batching): while bandwidth is the bound, "
    "more tokens take hardly longer. Weights of 8 or 4 bits are fewer bytes, and speculative "
    "decoding reads them once for several tokens.",
    saving="Unknown: a larger batch gives more tokens and not a shorter step. The evidence has the "
    "tokens a second, without profiling where that is known, and what they would be if each kernel "
    "whose bytes are known ran at the device's bandwidth or peak and nothing else took time. Not "
    "judged where the bytes of most products are unknown, as in eager steps without `--shapes`.",
    not_on_cpu="the launches ran on the CPU, whose peaks are not known",
    judge=_judge,
)
