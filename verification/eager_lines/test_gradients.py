"""Gradients: the first and later ones of a leaf, sums, backwards of backwards, kept graphs."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.compiling import torch
from tests.watched import needs_lines
from verification.eager_lines.seeing import briefly, seen

pytestmark = needs_lines


def weight(*size: int) -> Any:
    return torch.rand(*(size or (4, 4)), requires_grad=True)


def test_a_first_gradient_is_taken_as_it_is_and_a_second_one_added_at_the_line_of_its_op() -> None:
    w, given = weight(), torch.rand(4, 4)

    def step() -> None:
        w.grad = None
        for _ in range(2):
            y = w * given  # line: product
            y.backward(given)

    added = ("add_", "gradient_accumulation", "product")
    multiplied = [("mul", "forward", "product"), ("mul", "backward", "product")]
    assert briefly(step, "mul", "add_") == [*multiplied, *multiplied, added]
    (accumulated,) = seen(step, "add_")
    assert (accumulated.evidence, accumulated.link) == ("line_of_last_gradient", "sum_of_gradients")


def test_the_sum_for_a_value_used_twice_is_of_the_use_whose_gradient_comes_last() -> None:
    w, given = weight(), torch.rand(4, 4)

    def step() -> None:
        w.grad = None
        x = w * given
        a = x.sin()  # line: first use
        b = x.cos()  # line: second use
        torch.autograd.backward([a, b], [given, given])

    (summed,) = seen(step, "add", "add_")
    assert summed.brief[1:] == ("gradient_accumulation", "first use")
    assert (summed.evidence, summed.link) == ("line_of_last_gradient", "sum_of_gradients")


def test_the_gradient_of_a_weight_that_two_layers_share_is_summed_at_the_first_of_them() -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    given = torch.rand(4, 4)

    def step() -> None:
        model[0].weight.grad = None
        y = model(given)  # line: model
        y.backward(given)

    (summed,) = seen(step, "add", "add_")
    assert summed.brief[1:] == ("gradient_accumulation", "model")
    products = [each for each in seen(step, "mm") if each.phase == "backward"]
    assert [each.module for each in products] == ["1", "1", "0"]
    assert summed.module == "0"


def test_the_backward_of_a_backward_has_the_line_of_the_op_differentiated_twice() -> None:
    w, given = weight(), torch.rand(4, 4)

    def step() -> None:
        w.grad = None
        y = w.exp()  # line: exp
        (slope,) = torch.autograd.grad(y, w, given, create_graph=True)
        penalty = slope.sin()  # line: penalty
        penalty.backward(given)

    found = briefly(step, "exp", "mul", "sin", "cos")
    assert found == [
        ("exp", "forward", "exp"),
        ("mul", "backward", "exp"),
        ("sin", "forward", "penalty"),
        ("cos", "backward", "penalty"),
        ("mul", "backward", "penalty"),
        ("mul", "backward", "exp"),
        ("mul", "backward", "exp"),
    ]


def test_each_backward_through_a_kept_graph_has_the_lines_of_its_forward() -> None:
    w, given = weight(), torch.rand(4, 4)

    def step() -> None:
        y = w * given  # line: product
        y.backward(given, retain_graph=True)
        y.backward(given)

    found = briefly(step, "mul")
    assert found == [("mul", phase, "product") for phase in ("forward", "backward", "backward")]


def test_the_backward_of_a_forward_that_ran_before_the_recording_is_a_gap() -> None:
    w, given = weight(), torch.rand(4, 4)
    kept = [w * given, w * given]

    def step() -> None:
        kept.pop().backward(given)

    (product,) = seen(step, "mul")
    assert product.brief == ("mul", "backward", "gap forward_not_recorded")


def test_each_micro_batch_has_its_ops_lines_and_what_is_done_once_for_all_has_its_own() -> None:
    model, given = nn.Linear(4, 4, bias=False), torch.rand(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")

    def step() -> None:
        for _ in range(2):
            with torch.autocast("cpu", torch.bfloat16):
                y = model(given)  # line: model
            scaler.scale(y.float().sum()).backward()  # line: loss
        scaler.unscale_(optimizer)  # line: unscaling
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # line: clipping
        scaler.step(optimizer)  # line: stepping
        scaler.update()  # line: updating
        optimizer.zero_grad()

    ops = ("mm", "mul", "add_", "_amp_foreach_non_finite_check_and_unscale_", "_foreach_norm")
    found = seen(step, *ops, "_foreach_mul_", "_amp_update_scale_")
    micro_batch = [("mul", "loss"), ("mul", "loss"), ("mm", "model")]
    assert [(each.op, each.line) for each in found] == [
        *micro_batch,
        *micro_batch,
        ("add_", "model"),
        ("_amp_foreach_non_finite_check_and_unscale_", "unscaling"),
        ("_foreach_norm", "clipping"),
        ("mul", "clipping"),
        ("_foreach_mul_", "clipping"),
        ("add_", "stepping"),
        ("_amp_update_scale_", "updating"),
    ]
    scaled = [each for each in seen(step) if each.line in ("unscaling", "updating")]
    assert {each.phase for each in scaled} == {"optimizer"}
