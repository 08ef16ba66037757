"""What nothing reads in a step, and is gone at its end, need not be computed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.values.test_comparing import compared, lines_of

KEPT: dict[str, torch.Tensor] = {}


def unread(run: Callable[[], object], at: int) -> dict[str, float]:
    """Return the part of each op's results at a line that nothing reads."""
    line = lines_of(run)(at)
    own = [each for each in compared(run).ops if each.at.line == line]
    return {each.op.removeprefix("aten::"): each.unread_elements / each.elements for each in own}


def test_a_result_that_is_dropped_is_unread_and_so_is_what_only_it_reads() -> None:
    x = torch.randn(16, 16)

    def dropped() -> None:
        y = x @ x
        y.sin()

    def run() -> None:
        dropped()
        KEPT["y"] = x.cos()

    values = compared(run)
    line = lines_of(dropped)
    parts = {each.at.line: each.unread_elements / each.elements for each in values.ops}
    assert parts == {line(1): 1.0, line(2): 1.0, lines_of(run)(2): 0.0}


def test_what_a_step_returns_may_be_read_after_it() -> None:
    x = torch.randn(16, 16)

    def run() -> torch.Tensor:
        y = x @ x
        return y.sin()

    assert unread(run, 1) == {"mm": 0.0}
    assert unread(run, 2) == {"sin": 0.0}


def test_what_is_returned_is_read_though_an_op_read_it_before() -> None:
    x = torch.randn(16, 16)

    def run() -> torch.Tensor:
        y = x @ x
        y.sum()
        return y.detach()

    assert unread(run, 1) == {"mm": 0.0}
    assert unread(run, 2) == {}  # too small to be compared


def test_a_result_that_is_dropped_is_unread_where_many_others_are_alive() -> None:
    """Which of many tensors are alive is looked at every few ops, and at the end of a step."""
    x = torch.randn(16, 16)

    def dropped() -> None:
        x.cos()

    def run() -> torch.Tensor:
        kept = [x + at for at in range(400)]
        dropped()
        y = x
        for _ in range(40):
            y = y.sin()
        return torch.stack([*kept, y])

    values = compared(run)
    parts = {each.op: each.unread_elements / each.elements for each in values.ops}
    assert parts == {"aten::add": 0.0, "aten::cos": 1.0, "aten::sin": 0.0, "aten::stack": 0.0}


@pytest.mark.parametrize("read", ["item", "to_parameter", "inplace", "to_numpy_of_copy"])
def test_what_leaves_the_step_is_read(read: str) -> None:
    x, weight = torch.randn(16, 16), torch.zeros(16, 16)

    def run() -> None:
        y = x @ x
        if read == "item":
            y.sum().item()
        elif read == "to_parameter":
            weight.copy_(y)
        elif read == "inplace":
            weight.add_(y.sin(), alpha=2.0)
        else:
            KEPT["copy"] = y.clone()

    assert unread(run, 1) == {"mm": 0.0}


def test_of_a_matrix_whose_diagonal_is_read_the_rest_is_unread() -> None:
    x = torch.randn(16, 32)

    def run() -> None:
        products = x @ x.T
        scaled = products * 2.0
        KEPT["norms"] = scaled.diagonal().clone()

    assert unread(run, 1) == {"mm": 1 - 1 / 16}
    assert unread(run, 2) == {"mul": 1 - 1 / 16}
    assert unread(run, 3) == {}  # too small to be compared


def test_slices_add_up_and_rows_are_counted_where_they_are_picked() -> None:
    x, rows = torch.randn(64, 32), torch.arange(16)

    def run() -> None:
        y, z = x.sin(), x.cos()
        KEPT["parts"] = y[:16] + y[16:32] + y[:16]
        KEPT["rows"] = z[rows]

    values = unread(run, 1)
    assert values == {"sin": 0.5, "cos": 0.75}


def test_parts_that_one_op_reads_add_up() -> None:
    x = torch.randn(4, 8, 48)

    def run() -> None:
        q, k, v = x.sin().chunk(3, dim=-1)
        KEPT["out"] = torch.nn.functional.scaled_dot_product_attention(q, k, v)

    assert unread(run, 1) == {"sin": 0.0}


def test_a_product_needs_all_that_it_is_given() -> None:
    x = torch.randn(16, 16)

    def run() -> None:
        y = x.sin()
        KEPT["part"] = (y @ y)[:4].clone()

    assert unread(run, 1) == {"sin": 0.0}
    assert unread(run, 2)["mm"] == 0.75


def test_what_is_written_in_place_and_then_read_is_needed() -> None:
    x = torch.randn(16, 16)

    def run() -> None:
        into = torch.zeros_like(x)
        into[:8] = x[:8].sin()
        into.mul_(2.0)
        KEPT["all"] = into.clone()

    assert unread(run, 2) == {"sin": 0.0}


def test_what_a_backward_reads_is_needed_and_gradients_that_nobody_takes_are_not() -> None:
    layer, x = torch.nn.Linear(16, 16), torch.randn(8, 16)

    def run() -> None:
        y = layer(x).exp()
        torch.autograd.grad(y.sum(), layer.weight)
        KEPT["sum"] = y.detach().sum()

    values = compared(run)
    line = lines_of(run)(1)
    own = {(e.op, e.is_backward): e.unread_elements for e in values.ops if e.at.line == line}
    assert own["aten::addmm", False] == own["aten::exp", False] == 0
    assert own["aten::mm", True] == 256


def test_a_training_step_has_nothing_unread() -> None:
    layer = torch.nn.Linear(16, 16)
    optimizer = torch.optim.AdamW(layer.parameters())

    def run() -> None:
        x = torch.randn(8, 16)
        loss = torch.nn.functional.layer_norm(layer(x), (16,)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    run()
    assert not [each for each in compared(run).ops if each.unread_elements]
