"""Owns the description of a part of a Dynamo graph that a backend compiles by itself.

A backend may cut the graph (DDP at its buckets, serving engines at attention) and have each part
compiled on its own. Parts that are equal share one cache key, and a backend may keep one artifact
for all of them. So a part is described without the names that tell it from its equals, and its
nodes correspond to those of an equal part by their position.
"""

from __future__ import annotations

import dataclasses

import torch.fx

from profiler_ext.capture.traces.dynamo_graphs import Sources, digest_of
from profiler_ext.recall.dynamo_graph import DynamoGraph
from profiler_ext.torch_compat import fx, inputs


def part_of(gm: torch.fx.GraphModule, dynamo_graph: DynamoGraph) -> DynamoGraph | None:
    """Describe a graph that a backend has compiled; ``None`` where it is all of Dynamo's graph.

    Passes of a backend may change nodes, but what a graph takes stays: a part takes something else.

    Args:
        gm: the graph.
        whole: Dynamo's graph of the same compile.
    """
    given = inputs.all_inputs(gm)
    if tuple((f"argument {node.name}",) for node in given) == dynamo_graph.arguments:
        return None
    nodes = [n for g in fx.graph_modules(gm) for n in g.graph.nodes if n.op.startswith("call_")]
    # Inputs are called p_0, p_1, ... where torch's cache keys are to be the same for equal graphs.
    if digest_of(nodes, [fx.source_fns(node.meta) for node in nodes]) == dynamo_graph.digest:
        return None
    source_of = Sources(dynamo_graph.roots, dynamo_graph.own, dynamo_graph.held, has_no_modules="modules" in dynamo_graph.lost)
    paths = (dynamo_graph.tensor_paths.get(inputs.source_name(node) or "") for node in given)
    return dataclasses.replace(
        dynamo_graph,
        digest=digest_of(nodes, [()] * len(nodes)),
        sources={name: dynamo_graph.sources[name] for name in dynamo_graph.arguments if name in dynamo_graph.sources},
        places=tuple(map(source_of, nodes)),
        held_inputs={at: path for at, path in enumerate(paths) if path is not None},
    )
