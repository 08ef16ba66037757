"""The judge is right about tables made by hand, and the programs run as they launch and replay."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import profiler_ext
from tests.compiling import fresh_torch
from verification.flaws.programs.program import Sizes
from verification.replays.decoding import before_recording, own_rate, steps_of
from verification.replays.decoding import table as table_of_decoding
from verification.replays.judging import Kernel, Part, judge, table
from verification.replays.measuring import measure
from verification.replays.programs import PROGRAMS, SkippedError
from verification.replays.simulating import simulated

__all__ = ["fresh_torch"]

FIRST = Part("model.py:3", "layers.0", "forward")
SECOND = Part("model.py:3", "layers.1", "forward")
BACKWARD = Part("model.py:3", "layers.1", "backward")
OTHER_LINE = Part("model.py:4", "layers.1", "forward")
# Compilers and optimizers take seconds to import.
SLOW = [
    name
    for name in PROGRAMS
    if any(each in name for each in ("compiled", "train", "lean", "decoding"))
]
SLOW.append("optimizer_alone")


def ran(part: Part, name: str = "gemm", gap: str = "", ns: int = 100) -> Kernel:
    return Kernel(name, "[1,1,1]", ns, frozenset([part]), gap, is_replayed=True)


TRUTH = [ran(FIRST), ran(SECOND), ran(SECOND, "add", ns=50)]


def verdict(*step: Kernel, has_branches: bool = False) -> dict[str, Any]:
    return judge(TRUTH, [step], has_branches)


def test_a_replay_that_stands_where_the_launches_do_is_right() -> None:
    own = verdict(*TRUTH)
    assert own == {
        "kernels": 3,
        "judged_ns": 250,
        "right_ns": {"line": 250, "module": 250, "phase": 250},
        "wrong": 0,
        "gaps_ns": {},
        "unmatched": 0,
        "unmatched_ns": 0,
    }
    assert "| net | 3 | 100.00% | 100.00% | 100.00% | 0 |" in table(
        [{"name": "net", "verdict": own}]
    )
    assert "1 of 1 are right" in table([{"name": "net", "verdict": own}])


@pytest.mark.parametrize(
    ("part", "what"), [(FIRST, "module"), (BACKWARD, "phase"), (OTHER_LINE, "line")]
)
def test_another_line_layer_or_phase_is_wrong(part: Part, what: str) -> None:
    own = verdict(TRUTH[0], TRUTH[1], ran(part, "add", ns=50))
    assert own["wrong"] == 1
    assert own["right_ns"][what] == 200
    assert "0 of 1 are right" in table([{"name": "net", "verdict": own}])


def test_equal_kernels_are_compared_in_their_order_except_among_branches() -> None:
    swapped = (ran(SECOND), ran(FIRST), TRUTH[2])
    assert verdict(*swapped)["wrong"] == 2
    assert verdict(*swapped, has_branches=True)["wrong"] == 0
    assert verdict(ran(SECOND), ran(SECOND), TRUTH[2], has_branches=True)["wrong"] == 1


def test_a_gap_is_no_wrong_place_and_is_not_right() -> None:
    nowhere = Part(None, None, "other")
    own = verdict(TRUTH[0], ran(nowhere, gap="replay_differs_from_capture"), TRUTH[2])
    assert own["wrong"] == 0
    assert own["gaps_ns"] == {"replay_differs_from_capture": 100}
    assert own["right_ns"]["line"] == 150
    assert "0 of 1 are right" in table([{"name": "net", "verdict": own}])


def test_kernels_that_ran_another_number_of_times_have_no_counterpart() -> None:
    own = verdict(*TRUTH, TRUTH[2])
    assert (own["unmatched"], own["unmatched_ns"], own["judged_ns"]) == (2, 100, 200)
    assert own["wrong"] == 0


def test_what_is_launched_beside_a_replay_is_not_judged() -> None:
    launched = Kernel("add", "[1,1,1]", 50, frozenset([FIRST]))
    assert verdict(TRUTH[0], TRUTH[1], launched)["wrong"] == 0


def test_failures_and_programs_that_cannot_run_are_listed() -> None:
    text = table([{"name": "a", "failure": "it\nbroke"}, {"name": "b", "skipped": "no GPU"}])
    assert "| a | failed: it broke |" in text
    assert "| b | skipped: no GPU |" in text
    assert "0 of 0 are right; 2 programs" in text


def run_both_ways(name: str) -> None:
    with simulated():
        program = PROGRAMS[name](Sizes("cpu", True))
        for _ in range(2):
            next(program)()


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in SLOW])
def test_a_program_runs_as_it_launches_and_as_it_replays(name: str) -> None:
    try:
        run_both_ways(name)
    except SkippedError as error:
        pytest.skip(str(error))


@pytest.mark.whole
@pytest.mark.usefixtures("fresh_torch")
# Dynamo reads it of what a function that it resumes is passed.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize("name", SLOW)
def test_a_program_that_compiles_runs_both_ways(name: str) -> None:
    run_both_ways(name)


@pytest.mark.whole
@pytest.mark.usefixtures("fresh_torch")
@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="lines need Python 3.12")
def test_a_backward_that_is_captured_apart_has_the_lines_of_its_forward(tmp_path: Path) -> None:
    measure("transformer_engine", True, tmp_path)
    profiler_ext.disable()
    row = json.loads((tmp_path / "transformer_engine.json").read_text())
    own = row["verdict"]
    assert own["wrong"] == 0 and own["gaps_ns"] == {}
    assert set(own["right_ns"].values()) == {own["judged_ns"]}


def test_the_rate_of_a_loop_is_of_its_steps_without_prompts() -> None:
    noted = [[(0.0, 24), (1.0, 1), (1.5, 2), (2.0, 4)]]  # a prompt, its prefill, two rounds
    steps = steps_of(noted)
    assert steps == [(0.5, 2), (0.5, 4)]
    assert own_rate(steps) == (6.0, 3.0)
    assert before_recording(steps) == steps
    recorded = [(0.6, 1)] * 8
    assert before_recording([*steps, *recorded, (9.0, 1), (0.4, 1)]) == steps
    row: dict[str, Any] = {
        "name": "speculative",
        "kinds": ["speculative"],
        "own_rate": 6.0,
        "own_tokens": 3.0,
    }
    row["alone_rate"] = 7.0
    said = {"rate": 6.3, "tokens": 3.0, "is_most": False}
    assert "1 of 1 have the kind" in table_of_decoding([{**row, **said}])
    assert "0 of 1 have the kind" in table_of_decoding([{**row, **said, "rate": 7.0}])
    assert "0 of 1 have the kind" in table_of_decoding([{**row, **said, "kinds": ["prefill"]}])
