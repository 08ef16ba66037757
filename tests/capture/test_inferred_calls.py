"""What the text of an artifact tells of library calls is what a compile with capture records."""

from __future__ import annotations

import pytest
from torch import nn
from torch.utils.checkpoint import checkpoint

import profiler_ext
from profiler_ext.capture.graphs import registry
from profiler_ext.profiling import switch
from profiler_ext.recall.generated_code import graph_from_code
from profiler_ext.recall.lines import expanded
from profiler_ext.recall.provenance_lookup import ReadyArtifact
from profiler_ext.records.lineage import Frame
from profiler_ext.records.provenance import CallSite, FxNode, GraphInstance
from profiler_ext.records.vocabulary import SiteKind
from tests.compiling import fresh_torch, torch

__all__ = ["fresh_torch"]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tied = nn.Linear(8, 8)
        self.again = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.tied(x).relu()
        run: torch.Tensor = checkpoint(self.inner, first, use_reentrant=False)
        return self.tied(run).sum()

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        return self.again(x).sin() @ self.again.weight


@pytest.fixture
def compiled(
    fresh_torch: object, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[ReadyArtifact, GraphInstance]]:
    """The forward and the backward of the model, each with what was seen of its artifact."""
    seen = list[ReadyArtifact]()

    def noted(*args: object, **kwargs: bool) -> ReadyArtifact:
        seen.append(sees(*args, **kwargs))
        return seen[-1]

    sees = registry.ready_artifact
    monkeypatch.setattr(registry, "ready_artifact", noted)
    profiler_ext.enable(strict=True, cpu_events=False)
    torch.compile(Model())(torch.ones(4, 8, requires_grad=True)).backward()
    capture = switch.current()
    assert capture is not None
    found = list(zip(seen, capture.graphs, strict=True))
    profiler_ext.disable()
    return found


def library(sites: tuple[CallSite, ...]) -> list[CallSite]:
    return [site for site in sites if site.kind is SiteKind.EXTERN]


def last_line(node: FxNode) -> Frame:
    return expanded(node).lineage.stack[-1]


@pytest.mark.whole
def test_no_call_is_attributed_elsewhere_and_what_runs_again_is_attributed_nowhere(
    compiled: list[tuple[ReadyArtifact, GraphInstance]],
) -> None:
    counts = []
    for seen, graph in compiled:
        record, lines = graph_from_code(seen.code(), seen.dynamo)
        assert record is not None
        assert [s.kernel for s in record.call_sites] == [s.kernel for s in graph.call_sites]
        recorded = {node.name: node for node in graph.nodes}
        reported = {node.name: node for node in lines}
        again = {n.name for n in graph.nodes if n.lineage.partitioner_tag == "is_forward"}
        pairs = zip(library(record.call_sites), library(graph.call_sites), strict=True)
        attributed = [(mine.nodes, site.nodes) for mine, site in pairs if mine.nodes]
        assert [mine for mine, _ in attributed] == [own for _, own in attributed]
        names = [name for mine, _ in attributed for name in mine if reported[name].lineage.stack]
        assert [last_line(reported[n]) for n in names] == [last_line(recorded[n]) for n in names]
        assert not graph.is_backward or again.isdisjoint(names)
        counts.append((len(names), len(library(graph.call_sites))))
    (forward, all_of_forward), (backward, all_of_backward) = counts
    assert forward == all_of_forward == 4
    assert 0 < backward < all_of_backward
