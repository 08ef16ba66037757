"""The judges are right about rows made by hand, and pages of ncu's are read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profiler_ext.inside.line_table import LineTable
from profiler_ext.records.inside import InsideRoute, KernelPart, MeasuredKernel
from profiler_ext.records.kernel_lines import Instruction
from verification.inside import judging, looking
from verification.inside.judging import is_right, off_by, off_of_kernel, takes_nothing, truth_ns
from verification.inside.measuring import kernel_row, median_of_calls
from verification.inside.running import TINY


def planted(
    once_ns: float | None, parts_ns: float | None, takes_ns: float = 50e3
) -> dict[str, Any]:
    kernel = {
        "kernel": "triton_poi_fused_0", "step_ns": 200_000, "alone_ns": 190_000.0, "reason": "",
        "once_ns": once_ns, "parts_ns": parts_ns, "modelled_ns": 60e3, "once_reason": "",
    }  # fmt: skip
    whole = [200e3, 201e3, 199e3]
    return {
        "name": "tensor", "device": "a GPU", "kernels": [kernel], "whole_ns": whole,
        "without_ns": [each - takes_ns for each in whole],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("said", "right"), [(50e3, True), (45e3, True), (55e3, True), (44.9e3, False), (None, None)]
)
def test_knock_out_is_right_within_a_tenth_of_the_truth(
    said: float | None, right: bool | None
) -> None:
    assert truth_ns(planted(said, said)) == (50e3, 50e3, 50e3)
    assert is_right(planted(said, 50e3), "once_ns") is right
    assert is_right(planted(50e3, said), "parts_ns") is right


def test_where_there_is_nothing_to_save_an_estimate_is_judged_by_the_kernel() -> None:
    row = planted(-4e3, None, takes_ns=2e3)
    assert takes_nothing(row)
    assert is_right(row, "once_ns") is None
    assert off_of_kernel(row, "once_ns") == pytest.approx(0.02)
    assert off_of_kernel(row, "parts_ns") is None
    assert off_of_kernel(planted(50e3, 50e3), "once_ns") is None


def test_a_difference_that_changes_its_sign_is_nothing() -> None:
    row = planted(0.0, 0.0) | {"whole_ns": [200e3, 240e3], "without_ns": [210e3, 200e3]}
    assert takes_nothing(row)


def test_the_table_of_planted_lines_counts_those_that_were_judged() -> None:
    rows = [
        planted(50e3, None),
        planted(30e3, 51e3),
        planted(-6e3, 1e3, takes_ns=2e3),
        {"name": "broken", "failure": "a\n|b"},
        {"name": "small", **TINY},
    ]
    lines = judging.planted_table(rows).splitlines()
    assert lines[2] == (
        "| tensor | 200.0 | 150.0 | 50.0 [50.0, 50.0] | 50.0 | 1.000 |  |  | 1.200 | 0.95 |  |"
    )
    assert "| -6.0 | nothing to save, -3.0% | 1.0 | nothing to save, 0.5% |" in lines[4]
    assert lines[5:7] == ["| broken | failed: a /b |", f"| small | {TINY['tiny']} |"]
    assert lines[-3:] == [
        "Taken out at once: 1 of 2 within 10% of the truth. Of 1 more there is nothing to save: "
        "estimates within 3.0% of the kernel.",
        "Part by part: 1 of 1 within 10% of the truth. Of 1 more there is nothing to save: "
        "estimates within 0.5% of the kernel.",
        "Not measured: 2 of 5. a GPU",
    ]


def test_the_median_call_is_that_of_all_its_kernels_without_the_first() -> None:
    launches = [9.0, 9.0, 1.0, 2.0, 3.0, 2.0, 5.0, 2.0]
    assert median_of_calls(launches, 4, 1) == 5.0
    with pytest.raises(ValueError, match="7 launches of generated kernels in 4 calls"):
        median_of_calls(launches[:-1], 4, 1)


def node(name: str, line: int, measured: int, modelled: float) -> dict[str, Any]:
    return {
        "node": name, "op": f"aten.{name}", "file": "a.py", "line": line, "code": "x",
        "measured_ns": measured, "modelled_ns": modelled,
    }  # fmt: skip


def kernel(*nodes: dict[str, Any], total: int = 10_000, reason: str = "") -> dict[str, Any]:
    return {
        "kernel": "triton_a", "route": "samples", "step_ns": 1000, "total_ns": total,
        "reason": reason, "nodes": list(nodes),
    }  # fmt: skip


OFF = kernel(node("mul", 1, 700, 400.0), node("add", 1, 100, 400.0), node("exp", 2, 200, 200.0))
MOVED = kernel(node("mul", 1, 900, 500.0), node("add", 2, 100, 500.0), total=30_000)


def test_the_model_is_off_by_what_it_has_at_another_line_or_op() -> None:
    assert off_by(OFF, judging.line_of) == 0
    assert off_by(OFF, judging.op_of) == pytest.approx(0.3)
    assert off_by(MOVED, judging.line_of) == pytest.approx(0.4)


def test_the_table_of_the_model_weighs_by_time_and_names_what_it_missed() -> None:
    alone, lost = kernel(node("mul", 1, 1000, 1000.0)), kernel(reason="it has only 3 samples")
    rows: list[dict[str, Any]] = [
        {"name": "gpt", "device": "a GPU", "notes": [], "kernels": [OFF, MOVED, alone, lost]},
        {"name": "llama", "failure": "no transformers"},
    ]
    lines = judging.model_table(rows).splitlines()
    assert lines[2] == "| gpt | samples | 3 | 1 | 2 | 20% | 40% | 24% | 35% | 40% | 30% |"
    assert lines[3] == lines[2].replace("gpt", "all")
    assert "| llama | failed: no transformers |" in lines
    assert (
        "| gpt | triton_a | 1.0 | 40% | aten.mul a.py:1 `x` 90%, model 50% | "
        "aten.add a.py:2 `x` 10%, model 50% |"
    ) in lines
    assert "- 1 not measured by samples: it has only 3 samples" in lines


def way(**shares: float) -> dict[str, Any]:
    return {"samples": 5000, "reason": "" if shares else "it has only 3 samples", "shares": shares}


def test_samplings_agree_where_no_line_is_apart_by_more_than_two_points() -> None:
    ways = {"cold": way(mul=0.6, add=0.4), "ncu cold": way(mul=0.61, add=0.39), "step": way()}
    near = {"kernel": "triton_a", "step_ns": 20_000, "ways": ways}
    far = {**near, "ways": {**ways, "ncu cold": way(mul=0.5, add=0.3, index=0.2)}}
    rows: list[dict[str, Any]] = [
        {"name": "gpt", "device": "a GPU", "problems": {"step": "no time"},
         "kernels": [near, far, {**near, "step_ns": 9_000}]},
    ]  # fmt: skip
    lines = judging.ncu_table(rows).splitlines()
    assert lines[2:4] == [
        "| ours and ncu, each kernel alone, the cache emptied | 2 | 1 | 10.5 | 20.0 |",
        "| ours, in the step and so | 0 |  |  |  |",
    ]
    assert "- 3 kernels have no shares by step: it has only 3 samples" in lines
    assert "- gpt, step: no time" in lines
    assert lines[-2:] == [
        "| gpt | triton_a | 20.0 | 1.0 |  |",
        "| gpt | triton_a | 20.0 | 20.0 |  |",
    ]


def test_shares_of_a_kernel_are_by_what_its_lines_compute() -> None:
    parts = (
        KernelPart(("mul", "add"), (3,), 600),
        KernelPart((), (1,), 300, reason="index arithmetic"),
        KernelPart(("mul", "add"), (4,), 100),
    )
    measured = MeasuredKernel("a", InsideRoute.SAMPLES, 1, 1000, 1000, parts=parts, samples=5000)
    shares = {"mul+add": pytest.approx(0.7), "index arithmetic": 0.3}
    assert looking.shares_of(measured) == {"samples": 5000, "reason": "", "shares": shares}


PAGE = """==PROF== Disconnected
"Kernel Name","triton_poi_fused_0(float *, int)"
"#","Address","Source","Warp Stall Sampling (All Samples)","stall_long_sb","stall_selected","a (b)"
"1","7f00","      MOV R1, c[0x0][0x28]","1","0","1","0"
"2","7f10","@!P0 LDG.E.128 R4, [R2]","1,200","1,199","1","1,000"
"3","7f20","      EXIT","0","0","0","0"
"Kernel Name","triton_red_fused_1"
"Address","Source","Warp Stall Sampling (All Samples)"
"7f00","      FADD R1, R2, R3","7"
"""


def test_a_source_page_of_ncu_has_the_samples_of_each_instruction() -> None:
    first, second = looking.functions_of(PAGE.splitlines())
    assert first == (
        "triton_poi_fused_0",
        ("MOV", "LDG", "EXIT"),
        {0: {"long_scoreboard": 0, "selected": 1}, 16: {"long_scoreboard": 1199, "selected": 1}},
    )
    assert second == ("triton_red_fused_1", ("FADD",), {0: {"other": 7}})


def test_samples_of_ncu_are_those_of_a_binary_of_equal_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opcodes = ("MOV", "LDG.E.128", "EXIT", "NOP")
    code = [Instruction(16 * at, each, 1, is_padding=at > 2) for at, each in enumerate(opcodes)]
    table = LineTable("triton_poi_fused_0", 1, tuple(code))
    monkeypatch.setattr(looking, "read_folder", lambda folder, name: table)
    for end in ("cubin", "ptx"):
        (tmp_path / f"triton_poi_fused_0.{end}").touch()
    functions = list(looking.functions_of(PAGE.splitlines()))
    first, second = looking.binaries_of([functions[0], *functions], tmp_path)
    assert (first.table, first.function.at[16]["long_scoreboard"]) == (table, 2398)
    assert second.table.gap == "ncu's code is that of no binary in Triton's cache"
    assert not looking.is_same_code(("MOV", "STG", "EXIT"), table)
    assert not looking.is_same_code(("MOV", "LDG"), table)


def test_the_table_of_profile_says_what_is_wrong() -> None:
    row = {"kernels": 3, "measured": 2, "launches": 8, "wrong": [], "warnings": [], "reasons": []}
    lost = row | {"name": "line", "wrong": ["no kernel has measured shares"], "warnings": ["w"]}
    lines = judging.profile_table([row | {"name": "longest"}, lost]).splitlines()
    assert lines[2:4] == [
        "| longest | 3 | 2 | 8 |  |",
        "| line | 3 | 2 | 8 | no kernel has measured shares; w |",
    ]
    assert lines[-1] == "1 of 2 are right. "


def test_a_load_counts_unless_all_ops_of_the_line_together_pass_it_on() -> None:
    conversion = KernelPart(("float",), (3,), 20, 20.0, 19.0, 21.0, is_load=True)
    sum_of_both = KernelPart(("add",), (5,), 1, 1.0, 0.5, 1.5)
    together = KernelPart(("float", "add"), (3, 5), 22, 22.0, 21.0, 23.0)
    is_passed = replace(together, lines=(3,), is_load=True)
    parts = _measured(conversion, sum_of_both)
    row = kernel_row(parts, _measured(together), ("float", "add"))
    assert (row["parts_ns"], row["once_ns"]) == (21.0, 22.0)
    row = kernel_row(parts, _measured(replace(together, lines=(5,)), is_passed), ("float", "add"))
    assert row["parts_ns"] == 1.0


def _measured(*parts: KernelPart) -> MeasuredKernel:
    return MeasuredKernel("triton_poi_fused_0", InsideRoute.KNOCK_OUT, 1, 200, 200, parts=parts)
