"""The backward of a region that is compiled once for several calls leads to its own call."""

import linecache

import pytest
import torch

import profiler_ext
from profiler_ext.records.provenance import FxNode, GraphInstance
from tests.compiling import capture

# Matrix products are library calls, which need no C++ compiler.


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = (torch.nn.Parameter(torch.eye(8)) for _ in range(2))

    def forward(self, x):
        h = x @ self.up
        return h @ self.down


class Net(torch.nn.Module):
    def __init__(self, block=Block):
        super().__init__()
        self.blocks = torch.nn.ModuleList(block() for _ in range(3))

    @torch.compiler.nested_compile_region
    def around(self, block, x):
        return block(x)

    def forward(self, x):
        for block in self.blocks:
            x = self.around(block, x)
        return x @ x


def products(graph: GraphInstance) -> list[FxNode]:
    return [node for node in graph.nodes if node.target == "aten.mm.default"]


def place(node: FxNode) -> tuple[str, str]:
    frame, module = (
        node.lineage.stack[-1],
        node.lineage.modules[-1].path if node.lineage.modules else "",
    )
    return linecache.getline(frame.file, frame.line).strip(), module


@pytest.mark.usefixtures("fresh_torch")
def test_each_product_of_the_backward_leads_to_the_forward_product_of_its_own_call() -> None:
    profiler_ext.enable(strict=True)
    torch.compile(Net(), fullgraph=True)(torch.ones(8, 8, requires_grad=True)).sum().backward()
    forward, backward = capture().graphs
    by_name = {node.lineage.joint_name: place(node) for node in products(forward)}
    up, down = "h = x @ self.up", "return h @ self.down"
    blocks = [(line, f"blocks.{number}") for number in range(3) for line in (up, down)]
    assert sorted(by_name.values()) == sorted([*blocks, ("return x @ x", "")])
    linked = [(place(node), by_name[node.lineage.forward_node]) for node in products(backward)]
    assert set(linked) == {(own, own) for own in by_name.values()}


class Residual(Block):
    def forward(self, x):
        h = super().forward(x)
        return x + h


@pytest.mark.usefixtures("fresh_torch")
@pytest.mark.parametrize("autograd_cache", [True, False])
def test_from_a_cache_what_a_pass_merged_in_a_region_is_as_it_was_compiled(
    autograd_cache: bool,
) -> None:
    profiler_ext.enable(strict=True)
    for use_cache in (True, autograd_cache):
        torch._dynamo.reset()
        net = Net(Residual)
        with torch._functorch.config.patch(enable_autograd_cache=use_cache):
            torch.compile(net, fullgraph=True)(
                torch.ones(8, 8, requires_grad=True)
            ).sum().backward()
    cold, warm = (
        [
            (node.name, place(node), node.lineage.forward_node, node.replaced)
            for graph in graphs
            for node in graph.nodes
            if "addmm" in node.target or "mm.default" in node.target
        ]
        for graphs in (capture().graphs[:2], capture().graphs[2:])
    )
    state = "aot_hit" if autograd_cache else "fx_hit"
    assert {graph.cache_state for graph in capture().graphs[2:]} == {state}
    assert warm == cold
    assert any("/" in name for *_, replaced in cold for name in replaced)
