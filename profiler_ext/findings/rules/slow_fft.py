"""The rule for Fourier transforms whose length has a large prime factor."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, location_of
from profiler_ext.findings.finding import Confidence
from profiler_ext.findings.rule import Candidate, Rule, count_and_time

_BLUESTEIN = re.compile(r"bluestein", re.IGNORECASE)
# It runs two transforms of at least twice the length, where one of about the length would do
_SAVING = 3 / 4


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    if not facts.on_device:
        return CannotJudge("the launches ran on the CPU, where cuFFT is not")
    is_slow = facts.named(lambda name: _BLUESTEIN.search(name) is not None)
    launches = np.flatnonzero(facts.in_steps(is_slow))
    if not len(launches):
        return ()
    critical_ns = facts.median_per_step(launches, facts.paced_ns(launches))
    return (
        Candidate(
            summary="Fourier transforms of a length with a large prime factor",
            est_saving_ns=int(_SAVING * critical_ns),
            confidence=Confidence.ESTIMATED,
            remedy="pad to a product of 2, 3, 5 and 7 (n=..., scipy.fft.next_fast_len(n))",
            location=location_of(facts.place(facts.longest(launches))),
            evidence=count_and_time(facts, launches),
            launches=launches,
        ),
    )


RULE = Rule(
    name="slow_fft",
    title="Fourier transforms of an awkward length",
    means="cuFFT runs kernels of Bluestein's algorithm.",
    because="cuFFT has fast kernels for lengths that are products of small primes, best of 2, 3, 5 "
    "and 7. For other lengths it computes a convolution of at least twice the length: two "
    "transforms and three products.",
    remedy="Pad to the next power of two, or to `scipy.fft.next_fast_len(n)`. A convolution by "
    "transforms is the same with any length of at least the sum of both, less one.",
    saving="Three quarters of the time of these kernels on the critical path.",
    judge=_judge,
)
