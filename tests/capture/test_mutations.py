"""Each copy into a mutated input belongs to the line, module and phase which mutated it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor.async_compile import AsyncCompile

import profiler_ext
from profiler_ext.attribution.enclosing import CallContext
from profiler_ext.attribution.phases import node_phase
from profiler_ext.capture.lineage.functionalization import find_mutations, mutated_input
from profiler_ext.capture.lineage.node_rules import own_metadata
from profiler_ext.capture.lineage.stage import (
    Compilation,
    JointFindings,
    JointGraph,
    Lineages,
    Stage,
)
from profiler_ext.capture.traces.metadata import lineage_of
from profiler_ext.profiling import switch
from profiler_ext.records.evidence import Mechanism
from profiler_ext.records.vocabulary import Phase
from tests.capture.fx_graphs import Graph, aten, frame_text

MUTATING: dict[str, Any] = {
    "stack_trace": frame_text("/src/model.py", 3, "forward", "of the mutation"),
    "source_fn_stack": [("copy_", None)],
    "nn_module_stack": {"m": ("m", "Layer")},
    "seq_nr": 3,
}
EPILOGUE: dict[str, Any] = {"seq_nr": 9, "partitioner_tag": "must_be_in_forward"}


def found_of(*nodes: torch.fx.Node, mutated: Lineages) -> Lineages:
    """Return what the rule says of nodes whose joint graph's mutations are known."""
    joint = JointGraph("", frozenset(), findings=JointFindings(mutated=mutated))
    stage = Stage(nodes, Compilation(lambda _: joint))
    return mutated_input(stage.with_lineages(own_metadata(stage)))


def test_a_copy_is_attributed_to_the_op_that_mutated_and_not_to_the_value_it_wrote() -> None:
    graph = Graph()
    buffer, x = graph.given("buffer", 4), graph.given("x", 4)
    value = graph.call(aten.sin.default, [x], name="sin", stack_trace="of the value")
    new = graph.call(aten.copy.default, [buffer, value], name="copy", **MUTATING)
    copy = graph.call(aten.copy_.default, [buffer, new], name="copy_", **EPILOGUE)
    found = find_mutations(graph.module(copy))
    assert found == {"copy_": lineage_of(MUTATING)}
    copy.replace_input_with(new, value)  # what torch's joint graph passes make of it
    expected = lineage_of({**EPILOGUE, **MUTATING}).by(Mechanism.MUTATED)
    assert found_of(copy, value, mutated=found) == {"copy_": expected}


def test_a_value_without_a_stack_is_attributed_on_to_what_it_was_made_of() -> None:
    graph = Graph()
    buffer = graph.given("buffer", 4)
    made = graph.call(aten.add.Tensor, [buffer, 1], name="add", **MUTATING)
    view = graph.call(aten.view.default, [made, [4]], name="view", seq_nr=5)
    copy = graph.call(aten.copy_.default, [buffer, view], name="copy_", **EPILOGUE)
    assert find_mutations(graph.module(copy)) == {"copy_": lineage_of(MUTATING)}


def test_a_copy_between_values_of_the_graph_is_no_epilogue() -> None:
    graph = Graph()
    x = graph.given("x", 4)
    first = graph.call(aten.sin.default, [x], name="sin", **MUTATING)
    copy = graph.call(aten.copy_.default, [first, x], name="copy_", stack_trace="own")
    assert find_mutations(graph.module(copy)) == {}
    assert found_of(copy, mutated={"copy_": lineage_of(MUTATING)}) == {}


class Halving(torch.autograd.Function):
    """Scales its input; its backward updates a buffer in place, as float8's scales are."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, scale)
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[torch.Tensor, None]:
        x, scale = ctx.saved_tensors
        scale.mul_(0.5)
        return grads[0] * x.cos(), None


class Mutating(torch.nn.Module):
    """Mutates a buffer by a copy, in forward and in backward, and a batch norm's."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)
        self.register_buffer("scale", torch.ones(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        self.scale.copy_(normed.detach())
        return Halving.apply(normed, self.scale).sum()


_FORWARD = Mutating.forward.__code__.co_firstlineno
_BACKWARD = Halving.backward.__code__.co_firstlineno
_NORM = ("must_be_in_forward", _FORWARD + 1, "norm", Phase.FORWARD)


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch, fresh_torch: Path) -> Iterator[Path]:
    """Kernels are written, and none is compiled."""
    monkeypatch.setattr(AsyncCompile, "cpp_pybinding", lambda *_: lambda *_: None)
    with torch._inductor.config.patch({"cpp.vec_isa_ok": True}):
        yield fresh_torch


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.filterwarnings("ignore:<class 'torch.autograd.function:DeprecationWarning")
def test_buffers_mutated_in_forward_and_in_backward() -> None:
    profiler_ext.enable()
    torch.compile(Mutating())(torch.randn(4, 4)).backward()
    capture = switch.current()
    assert capture is not None
    rows = [
        (n.lineage.partitioner_tag, n.lineage.stack[-1].line, n.lineage.modules[-1].path,
         node_phase(n, graph, CallContext(), in_torch_optim=False))
        for graph in capture.graphs
        for n in graph.nodes
        if n.target == "aten.copy_.default"
    ]  # fmt: skip
    assert rows == [
        *[_NORM] * 3,
        ("must_be_in_forward", _FORWARD + 2, "", Phase.FORWARD),
        ("must_be_in_backward", _BACKWARD + 3, "", Phase.BACKWARD),
    ]


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.filterwarnings("ignore:<class 'torch.autograd.function:DeprecationWarning")
def test_where_no_gradient_is_asked_for_the_tag_tells_no_phase() -> None:
    profiler_ext.enable()
    with torch.no_grad():
        torch.compile(Mutating())(torch.randn(4, 4))
    capture = switch.current()
    assert capture is not None
    (graph,) = capture.graphs
    copies = [n for n in graph.nodes if n.target == "aten.copy_.default"]
    found = [
        (n.lineage.partitioner_tag, n.lineage.stack[-1].line, n.lineage.modules[-1].path)
        for n in copies
    ]
    tag = "must_be_in_backward"
    assert found == [*[(tag, _FORWARD + 1, "norm")] * 3, (tag, _FORWARD + 2, "")]
    phases = {node_phase(n, graph, CallContext(), in_torch_optim=False) for n in copies}
    assert phases == {Phase.FORWARD}
