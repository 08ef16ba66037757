"""Sums of gradients stand where the value was made whose gradients they add up.

Each function is traced, not compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import profiler_ext
from profiler_ext.records.evidence import Mechanism
from tests.compiling import capture, fresh_torch, torch
from tests.test_seq_nr_cases import given, links
from verification.oracle.stubs import stubbed

__all__ = ["fresh_torch"]


def several_uses(x: Any) -> Any:
    h = x.sin()
    a = h.cos()
    b = h.tan()
    return (a * b).sum()


def sums(function: Callable[..., Any], *inputs: Any) -> list[tuple[str | None, int | None]]:
    table = profiler_ext.seq_table(function, (given(), *inputs))
    found = links(function, *inputs)
    return [found[n] for n in table.query("phase == 'gradient_accumulation'")["node"]]


def test_the_sum_of_two_gradients_is_of_the_value_that_is_used_twice_and_moves_no_link() -> None:
    found = links(several_uses)
    assert sums(several_uses) == [("sin", 1)]
    assert found["cos_1"] == ("sin", 1)
    assert found["sin_1"] == ("cos", 2)
    assert "tan" in {forward for forward, _ in found.values()}


def residuals(x: Any) -> Any:
    h = x.sin()
    g = h.exp()
    y = h + g
    z = (y * h).cos() + g
    return (z + y).sum()


def test_each_sum_is_of_its_own_value_where_additions_hand_gradients_on_as_they_are() -> None:
    assert sums(residuals) == [("add", 3), ("sin", 1), ("exp", 2), ("sin", 1)]


def split_apart(x: Any) -> Any:
    a, b, _ = x.sin().unbind(0)
    c = a.exp()
    return (a * b + c + b).sum()


def test_the_sums_of_several_results_of_one_op_are_of_that_op() -> None:
    assert set(
        sums(
            split_apart,
        )
    ) == {("unbind", 1)}


def twice_by_one(x: Any) -> Any:
    h = x.sin()
    return (h * h).sum()


def test_both_gradients_of_one_op_are_summed_for_the_value_that_it_takes_twice() -> None:
    assert sums(twice_by_one) == [("sin", 1)]


def complex_value(x: Any) -> Any:
    waves = torch.fft.rfft(x)
    size = waves.abs()
    return (size * torch.angle(waves)).sum()


def test_all_of_a_sum_of_complex_gradients_is_of_the_complex_value(fresh_torch: Path) -> None:
    profiler_ext.enable(strict=True, cpu_events=False)
    with stubbed("cpu"):
        compiled: Any = torch.compile(complex_value)
        compiled(given()).backward()
    (backward,) = (graph for graph in capture().graphs if graph.is_backward)
    summed = [n.lineage for n in backward.nodes if n.lineage.original_aten == "aten.add.Tensor"]
    first = complex_value.__code__.co_firstlineno
    reported = {(each.forward_node, each.stack[-1].line - first, each.mechanism) for each in summed}
    assert reported == {("_fft_r2c", 1, Mechanism.GRADIENT_SUM)}


def used_parameter(x: Any, w: Any) -> Any:
    first = x @ w
    second = first.sin() @ w
    return second.sum()


def test_a_sum_for_an_input_which_no_op_makes_is_on_the_line_of_its_first_use() -> None:
    w = torch.rand(3, 3, requires_grad=True)
    assert sums(used_parameter, w) == [(None, 1)]
