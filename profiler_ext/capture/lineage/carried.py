"""Owns the nodes of graphs that a call carries, as those of a ``score_mod``.

Retracing left them their caller's line; Dynamo's graph tells what each was.
"""

from __future__ import annotations

from dataclasses import replace

import torch.fx

from profiler_ext.capture.lineage.joint_graph import Lineages
from profiler_ext.capture.lineage.stage import Stage
from profiler_ext.recall.dynamo_graph import DynamoGraph
from profiler_ext.recall.places import Source
from profiler_ext.records import Lineage, Mechanism
from profiler_ext.torch_compat import fx

_NO_SOURCE = Source((), ())


def graph_of_call(stage: Stage) -> Lineages:
    """Say where the nodes of a ``score_mod`` were called.

    A call that a pass made carries other graphs.
    """
    dynamo, caller = stage.dynamo, stage.caller
    if dynamo is None or caller is None or stage.compilation.represented_nodes(caller):
        return {}
    call = fx.source_fns(caller.meta)
    lineages: dict[str, Lineage] = {}
    for node in stage.nodes if call in dynamo.inlined else ():
        own = stage.lineages[node.name]
        if own.source_fns == call:
            source = _source(node, caller, dynamo, call)
            lineages[node.name] = replace(own, stack=source.stack).by(Mechanism.CARRIED)
    return lineages


def _source(
    node: torch.fx.Node, caller: torch.fx.Node, dynamo: DynamoGraph, call: tuple[str, ...]
) -> Source:
    """Return where a node of a carried graph was called.

    The derivative of a ``score_mod`` has other operators; its line is known where all of the
    ``score_mod`` stands on one, else it has none.
    """
    inner = [each for each in node.graph.nodes if each.op == "call_function"]
    ops = tuple(fx.op_name(each) for each in inner)
    graphs = [module.graph for _, module in fx.nested(caller)]
    is_mask = len(graphs) > 1 and node.graph is graphs[-1]
    same = dynamo.inlined_source(call, ops, inner.index(node))
    return same or dynamo.only_source(call, int(is_mask)) or _NO_SOURCE
