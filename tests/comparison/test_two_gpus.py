"""One program on an H100 and on an H200: what each line costs, which part, and what runs otherwise.

Forward of the GPT of ``examples/gpt.py`` (12 layers of width 768, autocast to bfloat16), six steps.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from profiler_ext.comparison.comparison import Comparison, compare
from profiler_ext.comparison.notes import devices_differ
from profiler_ext.comparison.records import Account, Row, Verdict
from profiler_ext.comparison.sides import RunOfRanks
from profiler_ext.exporters.diff.texts import row_texts
from profiler_ext.exporters.json_output.comparison import comparison_answer
from profiler_ext.sessions.session import load

FOLDER = Path(__file__).parents[1] / "fixtures" / "two_gpus"
NORMS = "native_layer_norm"
COPY = "triton_poi_fused__to_copy_1"


@cache
def run(gpu: str) -> RunOfRanks:
    return RunOfRanks(gpu, (load(FOLDER / f"{gpu}.session.pt.trace.json.gz").analysis,))


@cache
def compared() -> Comparison:
    return compare([run("h100")], [run("h200")])


def kernels(named: str) -> list[Row]:
    return [row for row in compared().table("kernel").rows if named in (row.subject.kernel or "")]


def test_what_memory_bounds_takes_a_sixth_less_or_better_and_products_hardly_less() -> None:
    assert devices_differ(compared())
    norms = [row.change for row in kernels(NORMS)]
    assert len(norms) == 9
    assert {change.verdict for change in norms} == {Verdict.FASTER}
    assert all(-0.31 < (change.fraction or 0) < -0.16 for change in norms)
    (products,) = kernels("extern_kernels.addmm")
    assert -0.05 < (products.change.fraction or 0) < 0


def test_the_part_of_the_products_is_larger_where_all_else_is_faster() -> None:
    (products,) = kernels("extern_kernels.addmm")
    assert "part of device time: 48.6% -> 51.1%" in texts(products)
    whole = compared().device
    rows = [r for r in compared().table("line").rows if r.subject.account == Account.DEVICE]
    for side in ("base_ns", "head_ns"):
        assert sum(getattr(row.change, side) for row in rows) == getattr(whole, side)


def test_a_kernel_that_was_tuned_otherwise_says_so_and_no_other_does() -> None:
    (copy,) = kernels(COPY)
    assert "grid 3456 -> 1728, block 256 -> 128" in texts(copy)
    named = ("grid ", "block ")
    otherwise = {
        row.subject.kernel for row in kernels("") if any(t.startswith(named) for t in texts(row))
    }
    copies = [f"triton_poi_fused__to_copy_{number}" for number in ("3", "4", "6", "7", "t_16")]
    assert otherwise == {COPY, *copies}


def test_a_program_is_reported_the_sizes_of_a_kernel_whose_launches_are_alike() -> None:
    rows = {
        row.base.kernel: (row.base, row.head)
        for row in comparison_answer(compared(), "kernel").rows
        if row.base is not None and row.head is not None
    }
    sizes = [
        [(each.grid, each.block) for each in rows[name]] for name in (COPY, "extern_kernels.addmm")
    ]
    assert sizes == [[("3456", "256"), ("1728", "128")], [(None, None)] * 2]
    of_lines = comparison_answer(compared(), "line").rows
    assert {each.grid for row in of_lines for each in (row.base, row.head) if each} == {None}


def test_a_kernel_that_is_launched_in_several_ways_has_no_shape() -> None:
    shapes = compared().base.shapes
    assert shapes[COPY, "triton"] == ("3456", "256")
    assert ("extern_kernels.addmm", "extern") not in shapes


def texts(row: Row) -> tuple[str, ...]:
    return row_texts(compared(), compared().table("kernel"), row).details
