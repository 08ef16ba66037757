"""A stall counts for what the warp waits for, which the code's scoreboards tell."""

from __future__ import annotations

import pytest

from profiler_ext.inside.pc_sampling import SampledFunction
from profiler_ext.inside.stalls import at_causes
from profiler_ext.records.kernel_lines import Instruction

_NONE = 7


def _instruction(
    offset: int,
    opcode: str,
    sets: int = _NONE,
    waits: tuple[int, ...] = (),
    target: int | None = None,
) -> Instruction:
    mask = sum(1 << board for board in waits)
    high = sets << 46 | _NONE << 49 | mask << 52
    return Instruction(offset, opcode, None, high=high, target=target)


def _sampled(at: dict[int, dict[str, int]]) -> SampledFunction:
    return SampledFunction("kernel", 1, at)


_STREAM = (
    _instruction(0x00, "S2R", sets=0),
    _instruction(0x10, "LDG.E.128", sets=1, waits=(0,)),
    _instruction(0x20, "LDG.E.128", sets=2),
    _instruction(0x30, "FADD", waits=(1,)),
    _instruction(0x40, "FMUL", waits=(2,)),
    _instruction(0x50, "STG.E.128"),
)


def test_a_wait_for_memory_is_at_the_load() -> None:
    moved = at_causes(_sampled({0x30: {"long_scoreboard": 90, "wait": 4}}), _STREAM)
    assert moved == {0x10: {"long_scoreboard": 90}, 0x30: {"wait": 4}}


def test_each_load_has_the_waits_for_its_own_value() -> None:
    sampled = _sampled({0x30: {"long_scoreboard": 60}, 0x40: {"long_scoreboard": 30}})
    moved = at_causes(sampled, _STREAM)
    assert moved == {0x10: {"long_scoreboard": 60}, 0x20: {"long_scoreboard": 30}}


def test_two_loads_on_one_scoreboard_share_the_wait() -> None:
    code = (
        _instruction(0x00, "LDG.E", sets=1),
        _instruction(0x10, "LDG.E", sets=1),
        _instruction(0x20, "FADD", waits=(1,)),
    )
    moved = at_causes(_sampled({0x20: {"long_scoreboard": 10}}), code)
    assert moved == {0x00: {"long_scoreboard": 5}, 0x10: {"long_scoreboard": 5}}


def test_a_load_that_was_waited_for_before_is_not_waited_for_again() -> None:
    code = (
        _instruction(0x00, "LDG.E", sets=1),
        _instruction(0x10, "FADD", waits=(1,)),
        _instruction(0x20, "LDG.E", sets=1),
        _instruction(0x30, "FADD", waits=(1,)),
    )
    moved = at_causes(_sampled({0x30: {"long_scoreboard": 8}}), code)
    assert moved == {0x20: {"long_scoreboard": 8}}


def test_a_load_at_the_end_of_a_loop_is_waited_for_at_its_begin() -> None:
    code = (
        _instruction(0x00, "MOV"),
        _instruction(0x10, "FADD", waits=(1,)),
        _instruction(0x20, "LDG.E", sets=1),
        _instruction(0x30, "BRA", target=0x10),
        _instruction(0x40, "EXIT"),
    )
    moved = at_causes(_sampled({0x10: {"long_scoreboard": 8}}), code)
    assert moved == {0x20: {"long_scoreboard": 8}}


@pytest.mark.parametrize("reason", ["long_scoreboard", "short_scoreboard"])
def test_the_reason_says_which_of_two_scoreboards_it_was(reason: str) -> None:
    code = (
        _instruction(0x00, "LDG.E", sets=1),
        _instruction(0x10, "MUFU.EX2", sets=2),
        _instruction(0x20, "FADD", waits=(1, 2)),
    )
    moved = at_causes(_sampled({0x20: {reason: 6}}), code)
    assert moved == {{"long_scoreboard": 0x00, "short_scoreboard": 0x10}[reason]: {reason: 6}}


def test_what_waits_for_nothing_known_stays() -> None:
    sampled = _sampled(
        {0x50: {"long_scoreboard": 3}, 0x70: {"long_scoreboard": 2}, 0x40: {"barrier": 1}}
    )
    assert at_causes(sampled, _STREAM) == dict(sampled.at)


def test_no_sample_is_lost() -> None:
    sampled = _sampled({each.offset: {"long_scoreboard": 7, "wait": 3} for each in _STREAM})
    moved = at_causes(sampled, _STREAM)
    assert sum(sum(reasons.values()) for reasons in moved.values()) == sampled.count
