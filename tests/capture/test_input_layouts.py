"""The copy of an input in another layout belongs to the op that asked for the layout."""

import linecache

import pytest
import torch
import torch.nn.functional as F

import profiler_ext
from profiler_ext.records.provenance import CallSite, GraphInstance
from tests.compiling import capture


def convolve(x: torch.Tensor, wide: torch.Tensor, narrow: torch.Tensor) -> torch.Tensor:
    h = F.conv2d(x, wide, stride=2)
    y = F.conv2d(h.relu(), narrow, stride=2)
    return y.square().sum()


def reordering(graph: GraphInstance) -> list[CallSite]:
    """The generated kernels that read inputs alone, before anything is computed."""
    assert graph.provenance is not None
    generated = [site for site in graph.provenance.call_sites if site.kind == "cpp"]
    return [s for s in generated if s.reads and all(r.startswith("primals") for r in s.reads)]


@pytest.mark.usefixtures("fresh_torch")
@pytest.mark.whole
def test_weights_that_are_reordered_belong_to_the_convolutions_that_read_them():
    profiler_ext.enable(strict=True)
    wide, narrow = (torch.randn(8, 8, 2, 2, requires_grad=True) for _ in range(2))
    torch.compile(convolve)(torch.randn(2, 8, 16, 16), wide, narrow).backward()
    forward = next(graph for graph in capture().graphs if not graph.is_backward)
    nodes = {node.name: node for node in forward.nodes}
    sites = reordering(forward)
    computed = {name for site in sites for name in site.nodes}
    lines = {
        linecache.getline(nodes[n].lineage.stack[-1].file, nodes[n].lineage.stack[-1].line)
        for n in computed
    }
    assert {line.split("=")[0].strip() for line in lines} == {"h", "y"}
    assert {nodes[name].target for name in computed} == {"aten.convolution.default"}
    assert all(site.nodes for site in sites)
