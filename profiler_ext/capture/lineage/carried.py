"""Owns the nodes of graphs that a call carries: a ``score_mod``'s, a repeated region's.

Retracing left the nodes of a ``score_mod`` its caller's line; and a region that is called often is
traced once, on one of its modules. Dynamo's graph tells what each was.
"""

from __future__ import annotations

from dataclasses import replace

import torch.fx

from profiler_ext.capture.lineage.stage import Lineages, Stage
from profiler_ext.recall.dynamo_graph import DynamoGraph, Source
from profiler_ext.records import Lineage, Mechanism, ModuleFrame
from profiler_ext.torch_compat import fx

_NOWHERE = Source((), ())


def graph_of_call(stage: Stage) -> Lineages:
    """Say where the nodes of a ``score_mod`` were called.

    A call that a pass made carries other graphs.
    """
    dynamo, caller = stage.dynamo, stage.caller
    if dynamo is None or caller is None or stage.compilation.stands_for(caller):
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
    return same or dynamo.only_source(call, int(is_mask)) or _NOWHERE


def module_of_call(stage: Stage) -> Lineages:
    """Lead the modules of a region that was traced on one module to the module of this call."""
    dynamo, caller = stage.dynamo, stage.caller
    here = dynamo.called_on.get(fx.source_fns(caller.meta)) if dynamo and caller else None
    if dynamo is None or here is None:
        return {}
    lineages = {node.name: stage.lineages[node.name] for node in stage.nodes}
    return {
        name: replace(o, modules=_moved(o.modules, here, dynamo)) for name, o in lineages.items()
    }


def _moved(
    modules: tuple[ModuleFrame, ...], here: str, dynamo: DynamoGraph
) -> tuple[ModuleFrame, ...]:
    traced = [path for path in dynamo.called_on.values() if modules and _leads(path, modules)]
    if not traced:
        return modules
    length = len(max(traced, key=len))
    return tuple(replace(m, path=here + m.path[length:]) for m in modules)


def _leads(path: str, modules: tuple[ModuleFrame, ...]) -> bool:
    return all(module.path == path or module.path.startswith(path + ".") for module in modules)
