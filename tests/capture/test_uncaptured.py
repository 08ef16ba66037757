"""A cache that was filled without capture: what the generated code tells, and no more."""

import pytest

import profiler_ext
from profiler_ext.profiling import switch
from profiler_ext.records.evidence import LineEvidence
from profiler_ext.records.provenance import GraphInstance
from profiler_ext.records.vocabulary import CacheState
from profiler_ext.torch_compat import inductor
from tests.compiling import TWICE_LINES, fresh_torch, torch, train_once

__all__ = ["fresh_torch"]

pytestmark = pytest.mark.usefixtures("fresh_torch")


def captured(*, aot: bool) -> tuple[GraphInstance, ...]:
    profiler_ext.enable(strict=True, cpu_events=False)
    with torch._functorch.config.patch(enable_autograd_cache=aot):
        train_once()
    capture = switch.current()
    assert capture is not None
    found = capture.graphs
    profiler_ext.disable()
    return found


def rows(graphs: tuple[GraphInstance, ...]) -> list[tuple[str, str | None, str, int]]:
    """Kernel, op, node and line of each call site's nodes."""
    return [
        (site.kernel, site.op, name, node.lineage.stack[-1].line)
        for graph in graphs
        if graph.provenance is not None
        for site in graph.provenance.call_sites
        for name in site.nodes
        for node in graph.nodes
        if node.name == name
    ]


def test_a_text_that_no_known_torch_writes_costs_the_nodes_and_not_the_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train_once()
    monkeypatch.setattr(inductor, "printed_graph", lambda artifact: "module { \0 }")
    found = captured(aot=True)
    assert [graph.provenance for graph in found] == [None, None]
    assert [[gap.reason for gap in graph.gaps] for graph in found] == [["graph_not_captured"]] * 2


@pytest.mark.parametrize(("aot", "state"), [(True, CacheState.AOT_HIT), (False, CacheState.FX_HIT)])
def test_call_sites_and_lines_are_read_from_the_artifact(aot: bool, state: CacheState) -> None:
    train_once()
    found = captured(aot=aot)
    assert [(graph.cache_state, graph.is_inferred) for graph in found] == [(state, True)] * 2
    assert {n.lineage.evidence for graph in found for n in graph.nodes} == {
        LineEvidence.CODE_COMMENTS
    }
    assert all("--recompile" in graph.gaps[0].detail for graph in found)
    upper, lower = TWICE_LINES
    assert rows(found) == [
        ("extern_kernels.mm", "aten::mm", "mm", upper),
        ("extern_kernels.mm", "aten::mm", "mm_1", lower),
        ("extern_kernels.mm", "aten::mm", "mm_2", lower),
        ("extern_kernels.mm", "aten::mm", "mm_3", upper),
    ]
