"""A call has the trace that put out what it yields, also where the trace puts out more."""

import torch
from torch.fx import Graph, GraphModule

from profiler_ext.capture.traces.nested_regions import DroppedTraces


def trace(*values: torch.Tensor) -> GraphModule:
    """Return a graph that puts these tensors out."""
    graph = Graph()
    nodes = [graph.placeholder(f"x{number}") for number, _ in enumerate(values)]
    for node, value in zip(nodes, values, strict=True):
        node.meta["example_value"] = value
    graph.output(tuple(nodes))
    return GraphModule({}, graph)


def call(*values: torch.Tensor) -> torch.fx.Node:
    node = Graph().call_function(len, ())
    node.meta["example_value"] = values
    return node


def test_a_call_has_the_trace_that_put_out_all_it_yields() -> None:
    mine, more, theirs = torch.ones(1), torch.ones(1), torch.ones(1)
    kept, own, other, dropped = trace(), trace(mine, more), trace(theirs), DroppedTraces()
    dropped.keep(kept, other)
    dropped.keep(kept, own)
    assert dropped.of_call(call(mine), kept) is own
    assert dropped.of_call(call(theirs), kept) is other
    assert dropped.of_call(call(mine, theirs), kept) is None
    assert dropped.of_call(call(), kept) is None
    assert dropped.of_call(call(mine), other) is None
