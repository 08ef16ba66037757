"""Gradients of each sample lead to the layers whose ops ``vmap`` decomposes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from profiler_ext.capture.lineage.gradients import find_gradients
from profiler_ext.capture.traces.creations import Creation, watched
from profiler_ext.records.evidence import ForwardEvidence
from profiler_ext.records.lineage import Lineage


def loss(weight: Any, row: Any) -> Any:
    hidden = functional.linear(row[None], weight, weight[0])
    scores = functional.linear(hidden.tanh(), weight, weight[1])
    given = torch.ones(1, dtype=torch.long)
    return functional.cross_entropy(scores, given)


def of_each(weight: Any, rows: Any) -> Any:
    return torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weight, rows)


@pytest.mark.usefixtures("fresh_torch")
def test_layers_and_the_loss_have_their_gradients_of_each_sample() -> None:
    with watched() as creations:
        compiled: Any = torch.compile(of_each, backend="aot_eager", fullgraph=True)
        compiled(torch.ones(8, 8), torch.ones(4, 8))
        (made,) = (each for each in creations.traced if any(m.autograd_node for m in each.values()))
        found = find_gradients(made)
    rule = ForwardEvidence.AUTOGRAD_NODE_OF_CALL
    attributed = [name for name, link in found.links.items() if link.evidence is rule]
    assert {(autograd_node_of(made[n]), code_of(found.places[n])) for n in attributed} == {
        ("AddmmBackward0", "hidden = functional.linear(row[None], weight, weight[0])"),
        ("AddmmBackward0", "told = functional.linear(hidden.tanh(), weight, weight[1])"),
        ("NllLossBackward0", "return functional.cross_entropy(told, given)"),
    }


def autograd_node_of(made: Creation) -> str | None:
    return made.autograd_node and made.autograd_node.name


def code_of(place: Lineage | None) -> str | None:
    return place.stack[-1].code if place else None
