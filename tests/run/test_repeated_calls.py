"""Which of the calls of a script ends its steps: the one that is called again and again."""

from __future__ import annotations

import pytest

from profiler_ext.records.recording import StepCall
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


def rounds(calls: str) -> str:
    """Return what ends steps after calls of a model, each with its tokens: ``D1 D1 T3``."""
    repeated, seen = RepeatedCall(2), ""
    for name, length in ((each[0], int(each[1:])) for each in calls.split()):
        tokens = StepCall(name, 1, length)
        call = Call(name, name, "forward", tokens=tokens, model=ord(name.upper()))
        if repeated.is_next(call):
            repeated.call = call
        seen += "-" if repeated.call is None else str(repeated.call.ender)
    return seen


@pytest.mark.parametrize(
    ("calls", "seen"),
    [
        ("D9 D1 D1 T12 D2 D1 D1 T4 D1 D1 D1 T4 D1 D1 D1 T4", "-DDDDDDDDDDTTTTT"),
        ("T9 D9 D1 D1 T3 D1 D1 T3 D1 D1 T3", "--DDDDDTTTT"),
        # A prompt by the same model in another way is no round, however long it is
        ("P4 p1 p1 p1 P4 p1 p1 p1 P4 p1 p1 p1", "--pppppppppp"),
    ],
)  # fmt: skip
def test_a_call_that_verifies_drafts_ends_a_round(calls: str, seen: str) -> None:
    assert rounds(calls) == seen
