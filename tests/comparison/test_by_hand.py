"""Runs written by hand and compared whole: what each row is of, its times, and what it came to."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler_ext.comparison.comparison import BY, Comparison, compare
from profiler_ext.comparison.notes import notes
from profiler_ext.comparison.records import (
    Account,
    Change,
    Match,
    PhaseTimes,
    Row,
    Subject,
    Verdict,
)
from profiler_ext.comparison.sides import RunOfRanks
from profiler_ext.errors import UsageError
from profiler_ext.records.compiles import Compilation, CompileKind, CompilePhase, CompileTime
from profiler_ext.records.vocabulary import LaunchKind, Phase
from tests.comparison.by_hand import FILE, Launch, Part, analysis, launch, run

MLP, NORM = "return self.down(F.gelu(self.up(x)))", "x = self.norm_of_the_block(x)"
ATTENTION = "return self.out(attention(q, k, v))"
TRITON = LaunchKind.TRITON


def wall_ns(side: RunOfRanks) -> int:
    return sum(line.duration_ns for each in side.analyses for line in each.breakdown)


def only(comparison: Comparison, by: str, **named: object) -> Row:
    """Return the one row with these names on its head's side, or its base's."""
    (row,) = (
        row
        for row in comparison.table(by).rows
        if all(getattr(row.subject, name) == value for name, value in named.items())
    )
    return row


def test_a_row_has_both_its_lines_and_its_times() -> None:
    before = [[launch(10, 100, MLP, module="blocks.0.mlp"), launch(20, 50, NORM)]] * 2
    after = [[launch(12, 130, MLP, module="blocks.0.mlp"), launch(22, 50, NORM)]] * 3
    comparison = compare([run(before)], [run(after)])
    assert only(comparison, "line", file="model.py", line=12) == Row(
        base=Subject(file="model.py", line=10, function="forward", code=MLP),
        head=Subject(file="model.py", line=12, function="forward", code=MLP),
        match=Match.MOVED,
        change=Change(200, 390, 2, 3, 2, 3, None, Verdict.TOO_FEW),
        phases=(PhaseTimes("forward", 200, 390),),
        modules=("blocks.*.mlp",),
    )
    moved = only(comparison, "line", file="model.py", line=22)
    assert (moved.match, moved.change.verdict) == (Match.MOVED, Verdict.EQUAL)
    assert only(comparison, "line", account=Account.IDLE).change == Change(
        40, 60, 2, 3, 0, 0, None, Verdict.EQUAL
    )
    assert comparison.total == Change(340, 600, 2, 3, 4, 6, None, Verdict.TOO_FEW)
    assert (comparison.total.delta_ns, comparison.total.fraction) == (30.0, 30 / 170)


def test_a_line_in_every_step_of_one_side_alone_is_new_or_gone_with_few_steps_too() -> None:
    before = [[launch(10, 100, MLP), launch(20, 50, NORM)]] * 2
    after = [[launch(10, 100, MLP), launch(30, 70, ATTENTION)]] * 2
    comparison = compare([run(before)], [run(after)])
    gone, new = (only(comparison, "line", line=number) for number in (20, 30))
    assert (gone.match, gone.change.verdict, gone.head) == (Match.REMOVED, Verdict.REMOVED, None)
    assert (new.match, new.change.verdict, new.base) == (Match.NEW, Verdict.NEW, None)
    assert (gone.change.delta_ns, new.change.delta_ns) == (-50, 70)


def test_a_line_of_some_steps_alone_is_not_called_new() -> None:
    before = [[launch(10, 100, MLP)]] * 5
    after = [[launch(10, 100, MLP)]] * 4 + [[launch(10, 100, MLP), launch(30, 70, ATTENTION)]]
    row = only(compare([run(before)], [run(after)]), "line", line=30)
    assert (row.match, row.change.verdict) == (Match.NEW, Verdict.NOT_SIGNIFICANT)


def test_what_is_more_than_noise_is_slower_and_what_is_not_is_noise() -> None:
    jitter = (0, 3_000, -2_000, 1_000, -1_000, 2_000)
    before = [[launch(10, 1_000_000 + j, MLP), launch(20, 500_000 - j, NORM)] for j in jitter]
    after = [[launch(10, 1_200_000 - j, MLP), launch(20, 500_500 + j, NORM)] for j in jitter]
    comparison = compare([run(before)], [run(after)])
    slower, noise = (only(comparison, "line", line=number) for number in (10, 20))
    assert (slower.change.verdict, noise.change.verdict) == (
        Verdict.SLOWER,
        Verdict.NOT_SIGNIFICANT,
    )
    interval = slower.change.interval
    assert interval is not None
    assert 0 < interval.low_ns < 199_000 < interval.high_ns
    assert interval.q_value < 0.001


def test_ranks_of_a_run_are_one_step_whose_mean_is_that_of_a_rank() -> None:
    steps = [[launch(10, 100, MLP)]] * 2
    ranks = RunOfRanks("r", (analysis(steps, 0), analysis([[launch(10, 300, MLP)]] * 2, 1)))
    comparison = compare([run(steps)], [ranks])
    change = only(comparison, "line", line=10).change
    assert (change.head_ns, change.head_steps, change.head_per_step_ns) == (800, 4, 200.0)
    assert comparison.head.steps == 4
    assert comparison.head.runs[0].ranks == (0, 1)


def test_the_mean_of_several_runs_is_that_of_all_their_steps() -> None:
    one, other = run([[launch(10, 100, MLP)]] * 2, "a"), run([[launch(10, 400, MLP)]] * 4, "b")
    change = only(compare([one, other], [one]), "line", line=10).change
    assert (change.base_ns, change.base_steps, change.base_per_step_ns) == (1800, 6, 300.0)


def fused(kernel: str, *lines: tuple[int, str], ns: int = 60) -> Launch:
    parts = (Part(n, ns, f"value_{n} = compute_of_line_{n}()", op=op) for n, op in lines)
    return Launch(kernel, tuple(parts), TRITON)


def test_a_fusion_that_changed_says_what_was_fused_before_and_now() -> None:
    gelu, add, mul = (10, "aten.gelu.default"), (11, "aten.add.Tensor"), (12, "aten.mul.Tensor")
    before = [[fused("triton_gelu_0", gelu), fused("triton_add_mul_1", add, mul)]] * 2
    after = [[fused("triton_gelu_add_0", gelu, add, ns=50), fused("triton_mul_1", mul)]] * 2
    (change,) = compare([run(before)], [run(after)]).fusions
    assert {each.kernels for each in change.base} == {("triton_gelu_0",), ("triton_add_mul_1",)}
    assert {each.kernels for each in change.head} == {("triton_gelu_add_0",), ("triton_mul_1",)}
    (now,) = (each for each in change.head if len(each.ops) == 2)
    assert [(op.line, op.aten_op, op.phase) for op in now.ops] == [
        (10, "aten.gelu.default", Phase.FORWARD),
        (11, "aten.add.Tensor", Phase.FORWARD),
    ]
    assert (now.duration_ns, now.launches) == (200, 2)
    assert change.change == Change(360, 320, 2, 2, 4, 4, None, Verdict.TOO_FEW)


def test_kernels_numbered_otherwise_and_views_are_no_change_of_a_fusion() -> None:
    gelu, view = (10, "aten.gelu.default"), (10, "aten.view.default")
    before = [[fused("triton_gelu_3", gelu), fused("triton_view_4", (11, "aten.add.Tensor"))]] * 2
    after = [
        [fused("triton_gelu_view_7", gelu, view, ns=30), fused("x", (11, "aten.add.Scalar"))]
    ] * 2
    comparison = compare([run(before)], [run(after)])
    assert comparison.fusions == ()
    assert only(comparison, "kernel", kernel="triton_gelu_view_7").match is Match.SAME_WORK


def test_work_that_came_or_went_is_no_change_of_a_fusion() -> None:
    one, two = fused("a", (10, "aten.mm.default")), fused("b", (11, "aten.add.Tensor"))
    assert compare([run([[one]] * 2)], [run([[one, two]] * 2)]).fusions == ()


def compiled(function: str, line: int, ns: int) -> Compilation:
    times = (CompileTime(CompilePhase.INDUCTOR, ns - 5), CompileTime(CompilePhase.DYNAMO, 5))
    return Compilation(
        0, CompileKind.FRAME, "0/0", 0, 1, 0, ns, times, function=function, file=FILE, line=line
    )


def test_compile_time_is_compared_by_function_and_its_unit_is_the_run() -> None:
    steps = [[launch(10, 100, MLP)]] * 9
    sides = [
        run(steps, compiles=(compiled("forward", 8, 1000), compiled("step", 70, 50))),
        run(steps, compiles=(compiled("forward", 8, 400),)),
    ]
    table = compare([sides[0]], [sides[1]]).table("compile")
    assert [(row.subject.function, row.change) for row in table.rows] == [
        ("forward", Change(1000, 400, 1, 1, 0, 0, None, Verdict.TOO_FEW)),
        ("step", Change(50, 0, 1, 1, 0, 0, None, Verdict.REMOVED)),
    ]
    assert table.total == Change(1050, 400, 1, 1, 0, 0, None, Verdict.TOO_FEW)
    messages = notes(compare([sides[0]], [sides[1]]), "compile")
    assert messages[0].startswith("what compiling takes is known once a run: several runs")


def test_any_set_of_parts_can_be_asked_for() -> None:
    backward = Part(10, 70, MLP, "blocks.3.mlp", phase=Phase.BACKWARD)
    before = [[launch(10, 100, MLP, module="blocks.3.mlp"), Launch("k", (backward,))]] * 2
    after = [[launch(10, 150, MLP, module="blocks.3.mlp"), Launch("k", (backward,))]] * 2

    def is_backward(subject: Subject) -> bool:
        is_mlp = re.fullmatch(r"blocks\.\d+\.mlp", subject.module or "")
        return bool(is_mlp) and subject.phase == Phase.BACKWARD

    comparison = compare([run(before)], [run(after)])
    assert comparison.where(is_backward) == Change(140, 140, 2, 2, 2, 2, None, Verdict.EQUAL)
    assert comparison.device == Change(340, 440, 2, 2, 4, 4, None, Verdict.TOO_FEW)


def test_other_devices_and_too_few_steps_are_reported() -> None:
    steps = [[launch(10, 100, MLP)]] * 2
    messages = notes(
        compare([run(steps)], [run([[launch(10, 90, MLP)]] * 3, device="NVIDIA H100")])
    )
    assert messages == (
        "the devices differ (NVIDIA H200; NVIDIA H100): compare the parts of a step as well as its "
        "times",
        "too few steps to tell a change from noise (2 and 3): record at least 5 of each side "
        "(--steps 5), or several runs",
    )


def test_a_step_that_is_unlike_the_others_is_reported() -> None:
    usual = [[launch(10, 190, MLP)]] * 6
    messages = notes(compare([run(usual)], [run([*usual[1:], [launch(10, 290, MLP)]])]))
    assert [each for each in messages if each.startswith("step ")] == [
        "step 6 of 6 of the head took 1.50 times as long as usual: it is in the means, and makes "
        "intervals longer"
    ]


def test_runs_of_one_side_that_are_of_different_versions_are_reported() -> None:
    one, other = ([[launch(10, 100, code)]] * 2 for code in (MLP, NORM))
    messages = notes(compare([run(one, "a"), run(other, "b")], [run(one), run(one)]))
    assert messages[0] == (
        "the runs of the base are of different versions of model.py: its lines are those "
        "of the first run"
    )


def test_a_run_without_steps_and_a_side_without_runs_are_refused() -> None:
    some = run([[launch(10, 100, MLP)]])
    with pytest.raises(UsageError, match=r"^empty has no profiled step, so .* `profiler-ext run`"):
        compare([some], [run([], "empty")])
    with pytest.raises(UsageError, match="give at least one session on each side"):
        compare([], [some])


def test_there_is_no_other_table() -> None:
    with pytest.raises(
        UsageError, match="ask for one of breakdown, phase, line, module, layer, op"
    ):
        compare([run([[launch(10, 1)]])], [run([[launch(10, 1)]])]).table("stream")


parts = st.builds(
    Part,
    line=st.integers(1, 6),
    duration_ns=st.integers(1, 10**7),
    code=st.sampled_from([None, "x = f(x)", MLP, NORM, ATTENTION]),
    module=st.sampled_from([None, "", "blocks.0.mlp", "blocks.1.mlp", "layers.0.mlp"]),
    op=st.sampled_from([None, "aten.mm.default", "aten::mm", "aten.view.default", "aten::add"]),
    phase=st.sampled_from(list(Phase)),
    file=st.sampled_from([FILE, "/src/other.py", "/elsewhere/model.py"]),
    function=st.sampled_from(["forward", "torch_dynamo_resume_in_forward_at_3"]),
)
launched = st.builds(
    Launch,
    kernel=st.sampled_from(["k0", "k1", "k2"]),
    parts=st.lists(parts, min_size=1, max_size=3, unique_by=lambda part: part.place).map(tuple),
    kind=st.sampled_from([LaunchKind.EAGER, TRITON, LaunchKind.EXTERN]),
    idle_ns=st.integers(0, 50),
)
a_side = st.lists(
    st.lists(st.lists(launched, max_size=4), min_size=1, max_size=6).map(run),
    min_size=1,
    max_size=3,
)


@settings(max_examples=60, deadline=None)
@given(a_side, a_side)
def test_nothing_is_lost_and_the_other_way_round_is_the_negative(
    base: list[RunOfRanks], head: list[RunOfRanks]
) -> None:
    there, back = compare(base, head), compare(head, base)
    for by in BY[:-1]:
        rows, turned = there.table(by).rows, back.table(by).rows
        assert sum(row.change.base_ns for row in rows) == sum(map(wall_ns, base))
        assert sum(row.change.head_ns for row in rows) == sum(map(wall_ns, head))
        assert sorted((r.change.head_ns, r.change.base_ns, -r.change.delta_ns) for r in rows) == (
            sorted((r.change.base_ns, r.change.head_ns, r.change.delta_ns) for r in turned)
        )
    assert there.total.delta_ns == -back.total.delta_ns
    assert all(
        row.change.verdict is Verdict.EQUAL for row in compare(base, base).table("line").rows
    )
