"""Times are exact, by whichever of the ways they are parsed."""

import random
from decimal import Decimal

import msgspec
import numpy as np
import pytest

from profiler_ext.kineto.times import nanoseconds

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
