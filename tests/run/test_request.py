"""What a command line asks ``run`` for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from profiler_ext.errors import UsageError
from profiler_ext.run.program import Program
from profiler_ext.run.request import Amount, EndedBy, Repeats, Request, StepOn

HERE = Program(__file__)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("3", Amount(3)),
        ("0", Amount(0)),
        ("500ms", Amount(None, 0.5)),
        ("1.5s", Amount(None, 1.5)),
        ("2min", Amount(None, 120.0)),
        ("1h", Amount(None, 3600.0)),
    ],
)
def test_an_amount_is_a_number_of_steps_or_a_time(text: str, amount: Amount) -> None:
    assert Amount.parsed(text) == amount


@pytest.mark.parametrize("text", ["", "-1", "1.5", "5 s", "s", "5d", "1e3", "3 steps", "٣s "])
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Amount.parsed(text)


@pytest.mark.parametrize(
    ("text", "step_on"),
    [
        ("AdamW", StepOn(EndedBy.OPTIMIZER, "AdamW")),
        ("forward", StepOn(EndedBy.FORWARD)),
        ("forward:GPT", StepOn(EndedBy.FORWARD, "GPT")),
        ("pack.age:Model.step", StepOn(EndedBy.FUNCTION, "Model.step", "pack.age")),
        (":evaluate", StepOn(EndedBy.FUNCTION, "evaluate", "__main__")),
    ],
)
def test_what_ends_a_step_is_read_and_reported_as_it_was_written(
    text: str, step_on: StepOn
) -> None:
    assert StepOn.parsed(text) == step_on
    assert str(step_on) == text


@pytest.mark.parametrize("text", ["", ":", "a:", "a b", "a..b:c", "forward:", "1a", "a:b:c"])
def test_what_names_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        StepOn.parsed(text)


@pytest.mark.parametrize(
    ("asked", "because"),
    [
        ({"program": Program("gone.py")}, "there is no script gone.py"),
        ({"steps": Amount(0)}, "--steps takes 1 or more"),
        ({"steps": Amount(None, 0.0)}, "--steps takes 1 or more"),
        ({"repeats": Repeats(keep=0)}, "--keep takes 1 or more"),
        ({"repeats": Repeats(slow=1.0)}, "--slow takes a number above 1"),
        ({"repeats": Repeats(every=1)}, "--every takes 2, which --steps records, or more"),
        ({"repeats": Repeats(every=9), "stops": True}, "leave --every out"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(asked: dict, because: str) -> None:
    request = Request(**({"program": HERE, "folder": Path("out")} | asked))
    with pytest.raises(UsageError, match=because):
        request.check()


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"repeats": Repeats(every=2)},
        {"repeats": Repeats(slow=1.5), "stops": True},
        {"steps": Amount(None, 5.0), "skip": Amount(0), "step_on": StepOn(EndedBy.FORWARD)},
    ],
)
def test_what_can_be_done_is_not_refused(asked: dict) -> None:
    Request(**({"program": HERE, "folder": Path("out")} | asked)).check()


@pytest.mark.parametrize("text", ["forward:GPT", ":evaluate"])
def test_what_only_a_newer_python_tells_is_refused_in_an_older_one(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(sys, "monitoring", raising=False)
    request = Request(HERE, Path("out"), step_on=StepOn.parsed(text))
    with pytest.raises(UsageError, match=f"--step-on {text} needs Python 3.12 or newer, and this"):
        request.check()
