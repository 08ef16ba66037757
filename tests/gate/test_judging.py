"""What comes of conditions, on runs that are written by hand."""

from __future__ import annotations

import re

import pytest

from profiler_ext.comparison.comparison import compare
from profiler_ext.comparison.conditions import Unit
from profiler_ext.comparison.gate import Evaluation, Outcome, Sizes, judge
from profiler_ext.comparison.records import Verdict
from profiler_ext.comparison.sides import RunOfRanks
from profiler_ext.errors import UsageError
from profiler_ext.records.compiles import Compilation, CompileKind, CompilePhase, CompileTime
from tests.comparison.by_hand import FILE, launch, run
from tests.gate.by_hand import DOWN, UP, compared, program

SAME = compared(program(), program(noise=(1, -2, 3, -3, 4, 2)))
SLOWER = compared(program(), program(up=1_060_000, shift=4))
WILD = (0, 400, -300, 250, -350, 10)


def only(comparison, text: str, sizes: Sizes | None = None) -> Evaluation:
    (result,) = judge(comparison, [text], sizes).results
    (found,) = result.judged
    assert result.outcome is found.outcome
    return found


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("line model.py:14 > +5%", Outcome.FAILED),
        ("line model.py:14 > +7%", Outcome.PASSED),
        ("line model.py:14 < -5%", Outcome.PASSED),
        ("line model.py:14 > +5% and > +300us", Outcome.FAILED),
        ("line model.py:14 > +5% and > +500us", Outcome.PASSED),
        ("line model.py:14 backward > +0.2ms", Outcome.FAILED),
        ("line model.py:14 forward > +0.2ms", Outcome.PASSED),
        ("line model.py:15-30 > +1%", Outcome.PASSED),
        ("line *.py:10-14 > +5%", Outcome.FAILED),
        ("module layers.*.mlp backward > +5%", Outcome.FAILED),
        ("module layers.*.mlp > +5%", Outcome.PASSED),
        ("module layers.*.mlp > +3%", Outcome.FAILED),
        ("module layers.*.norm > +1%", Outcome.PASSED),
        ("module layers > +3%", Outcome.FAILED),
        ("op mm > +3%", Outcome.FAILED),
        ("op aten::mm > +3%", Outcome.FAILED),
        ("kernel *_backward > +5%", Outcome.FAILED),
        ("phase backward > +5%", Outcome.FAILED),
        ("phase forward > +6%", Outcome.PASSED),
        ("device > +3%", Outcome.FAILED),
        ("total > +3%", Outcome.FAILED),
        ("total > +0.3ms", Outcome.FAILED),
        ("total > +0.4ms", Outcome.PASSED),
        ("idle > +5%", Outcome.PASSED),
        ("idle launch* > +5%", Outcome.PASSED),
    ],
)
def test_a_condition_fails_where_a_change_is_beyond_its_limits(text, outcome) -> None:
    assert only(SLOWER, text).outcome is outcome


def test_what_is_judged_has_its_times_its_interval_and_its_place() -> None:
    judged = only(SLOWER, "module layers.*.mlp backward > +5%")
    up = 2 * 2 * 1_000_000  # two layers, a backward of twice the time
    assert (judged.base, judged.head) == pytest.approx(
        (up * 1.000_17, up * 1.06 * 1.000_17), rel=1e-5
    )
    assert judged.interval is not None and 0 < judged.interval.low_ns < judged.delta
    assert (judged.unit, judged.verdict) == (Unit.NS, Verdict.SLOWER)
    assert judged.fraction == pytest.approx(0.06)
    (line,) = judged.lines
    assert (line.subject.file, line.subject.line, line.subject.code) == ("model.py", 14, UP)
    assert (line.is_in_head, line.delta_ns) == (True, pytest.approx(judged.delta))


def test_each_is_judged_by_itself_and_what_failed_stands_first() -> None:
    gate = judge(SLOWER, ["each line *.py > +5%", "each module layers.*.* > +1%"])
    lines, modules = gate.results
    assert [(each.name, each.outcome) for each in lines.judged] == [
        ("model.py:14", Outcome.FAILED),
        ("model.py:15", Outcome.PASSED),
        ("model.py:24", Outcome.PASSED),
    ]
    assert [each.name for each in modules.of(Outcome.FAILED)] == ["layers.0.mlp", "layers.1.mlp"]
    assert [each.name for each in modules.of(Outcome.PASSED)] == ["layers.0.norm", "layers.1.norm"]
    assert (gate.outcome, gate.has_passed) == (Outcome.FAILED, False)


def test_the_parts_of_each_add_up_to_their_sum() -> None:
    whole = only(SLOWER, "line *.py > +5%")
    (each,) = judge(SLOWER, ["each line *.py > +5%"]).results
    assert sum(one.base for one in each.judged) == pytest.approx(whole.base)
    assert sum(one.delta for one in each.judged) == pytest.approx(whole.delta)
    device = only(SLOWER, "device > +5%")
    assert (whole.base, whole.head) == (device.base, device.head)


def test_nothing_that_changed_within_the_noise_fails() -> None:
    gate = judge(SAME, ["each line *.py > +3%", "total > +3%", "device < -3%", "op mm > +1us"])
    assert [result.outcome for result in gate.results] == [
        Outcome.PASSED,
        Outcome.PASSED,
        Outcome.PASSED,
        Outcome.INCONCLUSIVE,
    ]
    assert gate.has_passed


def test_noise_that_would_hide_a_change_beyond_the_limit_is_unclear_and_no_pass() -> None:
    wild = compared(program(noise=WILD), program(up=1_060_000, noise=WILD[::-1]))
    judged = only(wild, "line model.py:10 > +5%")
    assert (judged.outcome, judged.verdict) == (Outcome.INCONCLUSIVE, Verdict.NOT_SIGNIFICANT)
    assert only(wild, "line model.py:10 > +500%").outcome is Outcome.PASSED


def test_too_few_steps_never_pass() -> None:
    few = compared(program(noise=(0, 1)), program(up=5_000_000, noise=(0, 1)))
    gate = judge(few, ["total > +5%", "each line * > +500%"])
    assert [result.outcome for result in gate.results] == [Outcome.TOO_FEW, Outcome.TOO_FEW]
    assert not gate.has_passed


def test_several_runs_are_the_unit_where_there_are_some() -> None:
    base = [program(noise=(shift, shift)) for shift in (0, 2, -2)]
    head = [program(up=1_060_000, noise=(shift, shift)) for shift in (1, -1, 2)]
    judged = only(compared(base, head), "line model.py:10 > +5%")
    assert (judged.outcome, judged.verdict) == (Outcome.FAILED, Verdict.SLOWER)


def test_what_is_new_is_beyond_any_part_of_nothing_and_held_against_a_time() -> None:
    more = [[*step, launch(50, 3_000, "y = more(x)")] for step in program(noise=(0, 1))]
    new = compared(program(noise=(0, 1)), more)
    judged = only(new, "line model.py:50 > +5%")
    assert (judged.outcome, judged.verdict, judged.fraction) == (Outcome.FAILED, Verdict.NEW, None)
    assert only(new, "line model.py:50 > +5% and > +10us").outcome is Outcome.PASSED
    back = compared(more, program(noise=(0, 1)))
    gone = only(back, "line model.py:50 < -5%")
    assert (gone.outcome, gone.verdict) == (Outcome.FAILED, Verdict.REMOVED)
    assert not gone.lines[0].is_in_head


def test_a_number_is_that_of_the_head_and_of_the_base_only_where_the_line_is_gone() -> None:
    with pytest.raises(UsageError, match=re.escape("'line model.py:10 > +5%' is of nothing")):
        judge(SLOWER, ["line model.py:10 > +5%"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("module layer.*.mlp > +5%", "is of nothing: no device time of either side is of it"),
        ("module layers.0.mpl > +5%", "like it are 'layers.0.mlp', "),
        ("line models.py > +5%", "like it are 'model.py:"),
        ("line model.py:15 backward > +5%", "no device time of either side is of it"),
        ("phase optimizer > +5%", "no device time of either side is of it"),
        ("idle data_loader > +5%", "no idle time of either side is of it"),
        ("compile > +5%", "neither side compiled anything while it was watched"),
        ("session_size > +5%", "a side was given as a session: give the paths"),
    ],
)
def test_a_condition_of_nothing_is_an_error_and_no_pass(text, expected) -> None:
    with pytest.raises(UsageError) as raised:
        judge(SLOWER, ["total > +50%", text])
    assert expected in str(raised.value)


def test_compile_time_is_judged_by_runs() -> None:
    def side(*times_ns: int) -> list[RunOfRanks]:
        return [run(program(noise=(0,)), compiles=(_compiled(ns),)) for ns in times_ns]

    slower = compare(side(1_000, 1_001, 999), side(1_500, 1_501, 1_502))
    assert only(slower, "compile > +20%").outcome is Outcome.FAILED
    assert only(slower, "compile > +60%").outcome is Outcome.PASSED
    assert only(compare(side(1_000), side(9_000)), "compile > +20%").outcome is Outcome.TOO_FEW


def _compiled(duration_ns: int) -> Compilation:
    times = (CompileTime(next(iter(CompilePhase)), duration_ns),)
    return Compilation(
        0, CompileKind.FRAME, "0/0", 0, 1, 0, duration_ns, times, function="f", file=FILE, line=1
    )


def test_a_gate_says_what_came_of_it() -> None:
    gate = judge(SLOWER, ["total > +3%", "idle > +5%"])
    assert repr(gate) == "<gate failed: failed 'total > +3%', passed 'idle > +5%'>"


def test_sizes_are_counted_so_any_difference_is_one() -> None:
    sizes = Sizes((100, 120), (121,))
    judged = only(SAME, "session_size > +9%", sizes)
    assert judged == Evaluation("", 110.0, 121.0, Unit.BYTES, None, None, Outcome.FAILED)
    assert only(SAME, "session_size > +11B", sizes).outcome is Outcome.PASSED
    assert only(SAME, "session_size < -1B", sizes).outcome is Outcome.PASSED


def test_a_gate_without_a_condition_is_none() -> None:
    with pytest.raises(UsageError, match="at least one condition"):
        judge(SAME, [])


def test_a_change_of_several_lines_is_placed_at_those_with_most_of_it() -> None:
    both = compared(program(), program(up=1_060_000, down=2_400_000))
    judged = only(both, "total > +5%")
    assert [(line.subject.line, line.subject.code) for line in judged.lines] == [
        (11, DOWN),
        (10, UP),
    ]
    assert sum(line.delta_ns for line in judged.lines) == pytest.approx(judged.delta)
