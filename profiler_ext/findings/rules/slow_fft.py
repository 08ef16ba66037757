"""The rule for Fourier transforms of an awkward length, or of real numbers as complex ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.facts import (
    CannotJudge,
    Facts,
    is_of_complex,
    launches_by_function,
    location_of,
)
from profiler_ext.findings.finding import Confidence
from profiler_ext.findings.rule import Candidate, Rule, count_and_time
from profiler_ext.records.events import Ints

_BLUESTEIN = re.compile(r"bluestein", re.IGNORECASE)
# It runs two transforms of at least twice the length, where one of about the length would do
_SAVING = 3 / 4
# ``aten::fft_fft`` of real numbers computes half of the spectrum and writes the other by this
_MIRRORS = "_fft_conjugate_copy_kernel"
_TRANSFORMS = "aten::_fft_c2c"
_REAL_PART = re.compile(r"\.real\b")
_INVERSE = "aten::fft_ifft"
_OTHER_PART = re.compile(r"\.imag\b|angle\(")
_HALF = 0.5


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    is_slow = facts.named(lambda name: _BLUESTEIN.search(name) is not None)
    launches = np.flatnonzero(facts.in_steps(is_slow))
    return (*_of_real_numbers(facts), *((_of_length(facts, launches),) if len(launches) else ()))


def _of_length(facts: Facts, launches: Ints) -> Candidate:
    saved_ns = facts.median_per_step(launches, facts.critical_ns(launches, _SAVING))
    return Candidate(
        summary="Fourier transforms of a length with a large prime factor",
        est_saving_ns=saved_ns,
        confidence=Confidence.ESTIMATED,
        remedy="pad to a product of 2, 3, 5 and 7 (n=..., scipy.fft.next_fast_len(n))",
        location=location_of(facts.place(facts.longest(launches))),
        evidence=count_and_time(facts, launches),
        launches=launches,
    )


def _of_real_numbers(facts: Facts) -> Iterator[Candidate]:
    """Yield the functions that write both halves of the spectrum of real numbers."""
    mirroring = np.flatnonzero(facts.in_steps(facts.named(lambda name: _MIRRORS in name)))
    is_complex = facts.named(is_of_complex) | facts.of_op(_TRANSFORMS.__eq__)
    complex_rows = np.flatnonzero(facts.in_steps(is_complex & (facts.main_place >= 0)))
    of_function = dict(launches_by_function(facts, complex_rows))
    for function, own in launches_by_function(facts, mirroring):
        rest = np.setdiff1d(of_function.get(function, own), own)
        rest = rest if _ends_in_real_numbers(facts, rest) else rest[:0]
        launches = np.union1d(own, rest)
        gone = np.where(np.isin(launches, own), 1.0, _HALF)
        saved_ns = facts.median_per_step(launches, facts.critical_ns(launches, gone))
        yield Candidate(
            summary="both halves of the spectrum of real numbers, which mirror each other",
            est_saving_ns=saved_ns,
            confidence=Confidence.ESTIMATED,
            remedy="torch.fft.rfft and irfft in place of fft and ifft",
            location=location_of(facts.place(facts.longest(own))),
            evidence=count_and_time(facts, launches),
            launches=launches,
        )


def _ends_in_real_numbers(facts: Facts, launches: Ints) -> bool:
    """Tell whether only the real part of an inverse transform is read; else both halves may be."""
    places = [facts.place(row) for row in launches.tolist()]
    codes = {place.code or "" for place in places}
    is_inverse = any((place.aten_op or "").startswith(_INVERSE) for place in places)
    is_real = any(map(_REAL_PART.search, codes)) and not any(map(_OTHER_PART.search, codes))
    return is_inverse and is_real


RULE = Rule(
    name="slow_fft",
    title="Fourier transforms of an awkward length, or of real numbers as complex ones",
    means="cuFFT runs kernels of Bluestein's algorithm. Or `torch.fft.fft` is given real numbers: "
    "`_fft_conjugate_copy_kernel` writes the second half of their spectrum.",
    because="cuFFT has fast kernels for lengths that are products of small primes, best of 2, 3, 5 "
    "and 7. For other lengths it computes a convolution of at least twice the length: two "
    "transforms and three products. The spectrum of real numbers is its own mirror image: half of "
    "it says all, and products and inverse transforms of both halves compute each number twice.",
    remedy="Pad to the next power of two, or to `scipy.fft.next_fast_len(n)`. A convolution by "
    "transforms is the same with any length of at least the sum of both, less one. Of real "
    "numbers: `torch.fft.rfft`, and `irfft(..., n)` back.",
    saving="Three quarters of the time of Bluestein's kernels on the critical path. Of real "
    "numbers that of the kernels that write the second half, and half of the other complex kernels "
    "of the function if a line of these takes the real part, and one of them is an inverse "
    "transform.",
    not_on_cpu="the launches ran on the CPU, where cuFFT is not",
    judge=_judge,
)
