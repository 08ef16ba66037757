"""Which of the calls of a script ends its steps: the one that is called again and again."""

from __future__ import annotations

import pytest

from profiler_ext.run.calls import Call, RepeatedCall

WEIGHTS = {"M": 1, "L": 1, "T": 1, "U": 1, "C": 8, "P": 8}
"""Of modules and, the last two, of compiled functions."""


def enders(calls: str, least: int = 2) -> str:
    """Return what ends steps after each call, ``-`` for nothing yet."""
    repeated, seen = RepeatedCall(least), ""
    for name in calls:
        call = Call(name, name, "forward", WEIGHTS[name])
        if repeated.is_next(call):
            repeated.call = call
        seen += "-" if repeated.call is None else str(repeated.call.ender)
    return seen


@pytest.mark.parametrize(
    ("calls", "seen"),
    [
        ("MMMM", "-MMM"),
        ("MLMLMLML", "--MMMMMM"),  # a model and its loss
        ("MCCCCMCCCC", "--CCCCCCCC"),  # a prompt, and compiled tokens
        ("PCCCCPCCCC", "--CCCCCCCC"),
        ("TTUUUUUUTTUU", "-TTTTTUUUUUU"),  # an encoder of two texts, and many denoising steps
        ("MMMC", "-MMC"),  # what is compiled says more
        ("CC" + "M" * 33, "-" + "C" * 33 + "M"),  # but not if it is hardly ever called
    ],
)
def test_the_call_that_repeats_ends_steps(calls: str, seen: str) -> None:
    assert enders(calls) == seen


def test_where_calls_were_asked_for_the_first_one_ends_a_step() -> None:
    assert enders("MLML", least=1) == "MMMM"
