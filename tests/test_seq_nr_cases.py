"""Where ``seq_nr`` lies: each backward op still leads to its forward op, or says that it does not.

Each function is traced, not compiled; what it expects is ``backward op: (forward op, line)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import profiler_ext
from tests.compiling import fresh_torch, torch

__all__ = ["fresh_torch"]


class Square(torch.autograd.Function):
    """A function with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * grads[0]


torchs_own_warning = pytest.mark.filterwarnings(
    "ignore:.*should not be instantiated:DeprecationWarning"
)
SQUARE_BACKWARD = Square.backward.__code__.co_firstlineno + 3


def given() -> Any:
    return torch.rand(3, 3, requires_grad=True)


def links(function: Callable[..., Any], *inputs: Any) -> dict[str, tuple[str | None, int | None]]:
    """Return each backward op's forward op and line, the lines counted from the function's."""
    table = profiler_ext.seq_table(function, (given(), *inputs))
    backward = table[(table["phase"] != "forward") & (table["node"] != "ones_like")]
    return {
        row.node: (_or_none(row.forward_node), line_of(function, row.line))
        for row in _rows(backward)
    }


def _rows(table: Any) -> Iterator[Any]:
    yield from table.itertuples(index=False)


def _or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def line_of(function: Callable[..., Any], line: int) -> int:
    return line - function.__code__.co_firstlineno


def without_gradient_between(x: Any) -> Any:
    y = x.sin()
    mask = y > 0.5
    return torch.where(mask, y, 0).sum()


def test_an_op_without_gradient_that_shares_a_number_is_nobodys_forward() -> None:
    found = links(without_gradient_between)
    assert found["cos"] == found["mul"] == ("sin", 1)
    assert "gt" not in {forward for forward, _ in found.values()}


def without_gradient_first(x: Any) -> Any:
    with torch.no_grad():
        scale = x.max()
    return (x / scale).sum()


def test_an_op_without_gradient_at_the_start_moves_no_link() -> None:
    assert links(without_gradient_first) == {"expand": ("sum_1", 3), "div_1": ("div", 3)}


def test_numbers_start_at_zero_where_the_first_op_has_no_gradient() -> None:
    table = profiler_ext.seq_table(without_gradient_first, given())
    assert table["SeqNr"].tolist() == [0, 1, 2, 2, 2, 1]


def one_function_twice(x: Any) -> Any:
    first = Square.apply(x)
    second = Square.apply(first)
    return second.sum()


@torchs_own_warning
def test_the_backward_of_an_autograd_function_leads_to_its_own_call() -> None:
    line = SQUARE_BACKWARD - one_function_twice.__code__.co_firstlineno
    assert links(one_function_twice) == {
        "expand": ("sum_1", 3),
        "mul_2": ("mul_1", line),
        "mul_3": ("mul_1", line),
        "mul_4": ("mul", line),
        "mul_5": ("mul", line),
    }


def one_function_twice_on_one_line(x: Any) -> Any:
    return Square.apply(Square.apply(x)).sum()


@torchs_own_warning
def test_two_calls_on_one_line_are_distinguished() -> None:
    found = links(one_function_twice_on_one_line)
    assert [found[name][0] for name in ("mul_2", "mul_3", "mul_4", "mul_5")] == [
        "mul_1",
        "mul_1",
        "mul",
        "mul",
    ]


def mutated_view(x: Any) -> Any:
    y = x.clone()
    y[0].mul_(2)
    return y.sum()


def test_a_view_that_autograd_makes_again_leads_to_the_line_that_mutates() -> None:
    found = links(mutated_view)
    assert found.pop("expand") == ("sum_1", 3)
    assert set(found.values()) == {("select_scatter", 2)}


def mutated_buffer(x: Any, buffer: Any) -> Any:
    y = (x * 2).sum()
    buffer.add_(1)
    return y


def test_a_mutated_input_moves_no_link() -> None:
    assert links(mutated_buffer, torch.rand(3)) == {"expand": ("sum_1", 1), "mul_1": ("mul", 1)}


def random(x: Any) -> Any:
    return torch.nn.functional.dropout(x.sin(), 0.5).sum()


def test_dropout_leads_to_the_op_and_not_to_one_of_its_results() -> None:
    assert links(random)["native_dropout_backward"] == ("native_dropout", 1)


def branches(x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,)).sum()


def test_a_branch_leads_to_the_branch() -> None:
    assert links(branches)["cond_1"] == ("cond", 1)


def checkpointed(x: Any) -> Any:
    def block(x: Any) -> Any:
        return x.sin().cos()

    return torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False).sum()


def test_a_checkpointed_block_keeps_its_links() -> None:
    assert links(checkpointed) == {
        "expand": ("sum_1", 4),
        "sin_1": ("cos", 2),
        "neg": ("cos", 2),
        "mul": ("cos", 2),
        "cos_1": ("sin", 2),
        "mul_1": ("sin", 2),
    }


def traced_gradient(w: Any, x: Any) -> Any:
    def loss(w: Any) -> Any:
        h = x @ w
        g = h.sin() + h
        return g.sum()

    gradient = torch.func.grad(loss)(w)
    return (w * gradient).sum()


TRACED_GRADIENT = {
    "ones_like": ("sum_1", 4),
    "expand": ("sum_1", 4),
    "cos": ("sin", 3),
    "mul": ("sin", 3),
    "add_1": ("mm", 2),
    "t": ("mm", 2),
    "mm_1": ("mm", 2),
}


def test_a_gradient_traced_in_the_forward_leads_to_what_it_differentiates() -> None:
    table = profiler_ext.seq_table(traced_gradient, (given(), torch.rand(3, 3))).set_index("node")
    taken = table.loc["ones_like":"mm_1"]
    assert {
        name: (_or_none(row.forward_node), line_of(traced_gradient, row.line))
        for name, row in zip(taken.index, _rows(taken), strict=True)
    } == TRACED_GRADIENT
    assert set(taken.drop("add_1")["phase"]) == {"backward"}
    assert taken.loc["add_1", "phase"] == "gradient_accumulation"


def test_the_backward_of_a_traced_gradient_leads_on_to_the_forward() -> None:
    table = profiler_ext.seq_table(traced_gradient, (given(), torch.rand(3, 3))).set_index("node")
    outer = table.loc["ones_like_1":].query("forward_node in @TRACED_GRADIENT")
    expected = [TRACED_GRADIENT[name][1] for name in outer["forward_node"]]
    assert [line_of(traced_gradient, line) for line in outer["line"]] == expected
    assert set(outer["forward_node"]) >= {"mm_1", "mul", "cos"}


def labelled(x: Any) -> Any:
    with torch.fx.traceback.annotate({"region": "trunk"}):
        y = x.sin()
    return y.sum()


def test_the_users_labels_are_a_column_on_forward_and_backward() -> None:
    table = profiler_ext.seq_table(labelled, given())
    labels = dict(zip(table["node"], table["annotation"].fillna(""), strict=True))
    assert labels == {
        "sin": "region=trunk",
        "sum_1": "",
        "ones_like": "",
        "expand": "",
        "cos": "region=trunk",
        "mul": "region=trunk",
    }


def tagged_the_old_way(x: Any) -> Any:
    with torch.fx.traceback.annotate({"autograd_backward": True, "region": "trunk"}):
        y = x.sin()
    return y.sum()


def test_a_forward_op_with_the_old_backward_tag_is_forward_and_keeps_the_tag() -> None:
    table = profiler_ext.seq_table(tagged_the_old_way, given()).set_index("node")
    assert table.loc["sin", ["phase", "autograd_backward", "annotation"]].tolist() == [
        "forward",
        True,
        "region=trunk",
    ]
