"""What the backward of a higher-order op runs again is the forward body's own, node by node."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.attention.flex_attention as flex
from functorch.compile import default_partition, make_boxed_func
from torch._dynamo.backends.common import aot_autograd

from profiler_ext.capture.graphs.fx_nodes import describe_nested, nested_nodes
from profiler_ext.capture.lineage.joint import describe_joint
from profiler_ext.capture.lineage.nested_graphs import find_bodies
from profiler_ext.capture.lineage.stage import Compilation
from profiler_ext.capture.traces.creations import watched
from profiler_ext.records.provenance import FxNode

pytestmark = pytest.mark.usefixtures("fresh_torch")


def backward_bodies(function: Callable[..., Any], *inputs: torch.Tensor) -> list[FxNode]:
    """Trace a function and its backward; return the backward's nodes in nested graphs."""
    found: list[FxNode] = []

    def partition(gm: torch.fx.GraphModule, *rest: Any, num_fwd_outputs: int, **_: Any) -> Any:
        joint = describe_joint(gm, {}, creations=creations.of(gm.graph))
        bodies = find_bodies(gm, joint.findings.links, creations.of, creations.traced)
        joints.append(replace(joint, findings=replace(joint.findings, bodies=bodies)))
        return default_partition(gm, *rest, num_fwd_outputs=num_fwd_outputs)

    def backward(gm: torch.fx.GraphModule, _: Any) -> Any:
        around = Compilation(lambda graph: joints[-1] if graph is gm.graph else None)
        found.extend(describe_nested(nested_nodes(gm), around))
        return make_boxed_func(gm.forward)

    def forward(gm: torch.fx.GraphModule, _: Any) -> Any:
        return make_boxed_func(gm.forward)

    joints: list[Any] = []
    with watched() as creations:
        backend = aot_autograd(fw_compiler=forward, bw_compiler=backward, partition_fn=partition)
        torch.compile(function, backend=backend, fullgraph=True)(*inputs).sum().backward()
    return found


def attend(x: torch.Tensor) -> torch.Tensor:
    return flex.flex_attention(x, x, x, score_mod=lambda score, b, h, q, k: score.tanh() * 2)


def test_scores_are_made_again_and_their_derivative_is_the_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flex, "_validate_device", lambda *_: None)
    x = torch.rand(1, 2, 128, 32, device="meta", requires_grad=True)
    links = {
        n.name: (n.lineage.forward_node, n.lineage.forward_evidence)
        for n in backward_bodies(attend, x)
    }
    again = {name: link for name, link in links.items() if "fw_graph" in name}
    assert again == {
        f"flex_attention_backward/fw_graph0/{op}": (
            f"flex_attention/sdpa_score0/{op}",
            "recomputed_forward",
        )
        for op in ("tanh", "mul")
    }
    derived = [link for name, link in links.items() if "joint_graph" in name]
    assert set(derived) == {("flex_attention", "link_of_call")}


def branches(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.exp().sin(), lambda x: x.cos(), (x,))


def test_a_branch_runs_again_what_its_backward_needs() -> None:
    found = backward_bodies(branches, torch.rand(4, 4, requires_grad=True))
    taken = [node for node in found if "true_graph" in node.name and "detach" not in node.name]
    assert {
        (node.target, node.lineage.forward_node, node.lineage.forward_evidence) for node in taken
    } == {
        ("aten.exp.default", "cond/true_graph_0/exp", "recomputed_forward"),
        ("aten.cos.default", "cond/true_graph_0/sin", "autograd_node_of_body"),
        ("aten.mul.Tensor", "cond/true_graph_0/sin", "autograd_node_of_body"),
        ("aten.mul.Tensor", "cond/true_graph_0/exp", "autograd_node_of_body"),
    }
