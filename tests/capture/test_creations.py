"""A node knows whether the autograd node that ran when it was made hands on twice."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch._functorch.aot_autograd import aot_function, make_boxed_func

from profiler_ext.capture.traces.creations import watched


def twice_used_by_one(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    return (y * y).sum()


def used_by_two(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    return (y.exp() * y.cos()).sum()


def sums_of(function: Callable[[torch.Tensor], torch.Tensor]) -> list[tuple[str, bool]]:
    """Return for each sum of gradients what ran when it was made, and whether that feeds twice."""
    with watched() as creations:
        traced = aot_function(function, fw_compiler=lambda gm, _: make_boxed_func(gm.forward))
        traced(torch.ones(4, requires_grad=True)).backward()
    [made] = creations.traced
    return [
        (creation.autograd_node.name, creation.feeds_twice)
        for creation in made.values()
        if creation.target == "aten.add.Tensor" and creation.autograd_node is not None
    ]


def test_a_node_with_two_edges_to_one_other_hands_on_twice() -> None:
    assert sums_of(twice_used_by_one) == [("MulBackward0", True)]


def test_nodes_that_hand_on_once_each_do_not() -> None:
    assert sums_of(used_by_two) == [("ExpBackward0", False)]
