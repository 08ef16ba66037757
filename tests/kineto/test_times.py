"""Times are exact, by whichever of the ways they are parsed."""

import random
from decimal import Decimal

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler_ext.kineto.decoding import nanoseconds, of_doubles

EDGES = ("0.001", "-0.001", "4398046511103.999", "7999999999999.999", "-7999999999999.999", "5")
BEYOND = ("8000000000000.001", "1700000000000000.123", "81234567.0625", "0.0005", "0.0015", "1e3")


def parsed(texts):
    raws = [msgspec.Raw(text.encode()) for text in texts]
    return nanoseconds("ts", raws, np.arange(len(raws))).tolist()


def exact(texts):
    return [round(Decimal(text) * 1000) for text in texts]


@pytest.mark.parametrize("texts", [EDGES, BEYOND, EDGES + BEYOND], ids=["few", "any", "both"])
def test_edges_are_exact(texts):
    assert parsed(texts) == exact(texts)


@pytest.mark.parametrize("digits", [1, 7, 12, 13])
@pytest.mark.parametrize("decimals", [(3,), (0, 1, 2, 3)])
def test_any_time_of_three_decimals_at_most_is_exact(digits, decimals):
    chosen = random.Random(digits)
    whole = [chosen.randrange(8 * 10 ** (digits - 1)) for _ in range(2000)]
    lengths = [chosen.choice(decimals) for _ in whole]
    rests = [f".{chosen.randrange(10**length):0{length}d}" if length else "" for length in lengths]
    texts = [f"{one}{rest}" for one, rest in zip(whole, rests, strict=True)]
    assert parsed(texts) == exact(texts)


def test_one_long_time_among_many_leaves_the_others_exact():
    texts = [f"{7_999_999_000_000 + n}.{n:03d}" for n in range(1000)] + ["1.00049999999999999999"]
    assert parsed(texts) == exact(texts)


def read_as_doubles(texts):
    times = of_doubles(np.array([float(text) for text in texts]))
    return None if times is None else times.tolist()


def test_doubles_tell_any_time_of_three_decimals_below_their_limit():
    chosen = random.Random(3)
    below = [chosen.randrange(2**42) >> chosen.randrange(42) for _ in range(2000)]
    texts = [f"{one}.{chosen.randrange(1000):03d}" for one in below]
    texts += ["-0.001", "-2.5", "-0.0", "7", "1e3", "4398046511103.999"]
    assert read_as_doubles(texts) == exact(texts)


@pytest.mark.parametrize("text", ["4398046511104.000", "1e300", "inf", "nan", "0.0005", "2.0625"])
def test_doubles_that_may_stand_for_another_time_tell_none(text):
    assert read_as_doubles(["1.000", text]) is None


@given(st.integers(0, 10**13), st.integers(0, 10**6 - 1))
def test_what_doubles_tell_is_what_the_text_says(whole, millionths):
    texts = [f"{whole}.{millionths:06d}"]
    assert read_as_doubles(texts) in (None, exact(texts))
