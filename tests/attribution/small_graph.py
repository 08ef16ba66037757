"""A small graph of four nodes and three call sites, and a trace of one call of it."""

from __future__ import annotations

from profiler_ext.records.recording import Recording
from tests.attribution.graphs import extern, graph, node, triton
from tests.attribution.timeline import Timeline

NODES = (node("mul", 3), node("add", 4), node("mm", 5), node("relu", 6))
SITES = (
    triton("triton_poi_fused_mul_0", "mul", "add", weights=(2, 1)),
    extern("mm", "mm"),
    triton("triton_poi_fused_relu_1", "relu"),
)


def launch_all(timeline: Timeline) -> None:
    """Launch what each call site launches, in order."""
    timeline.triton("triton_poi_fused_mul_0")
    timeline.op("aten::mm", "cublas", "splitK")
    timeline.triton("triton_poi_fused_relu_1")


def one_call() -> Timeline:
    """Return a trace of one call of the graph."""
    timeline = Timeline()
    with timeline.forward("fkey"):
        launch_all(timeline)
    return timeline


def one_graph(**changes: object) -> Recording:
    """Return the recording of that call; changes are those of the graph."""
    return one_call().recording(graph(NODES, SITES, **changes))
