"""Owns the nodes of graphs that a call carries: a ``score_mod``'s, a repeated region's.

Retracing left the nodes of a ``score_mod`` its caller's line; and a region that is called often is
traced once, on one of its modules. Dynamo's graph tells what each was.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from itertools import takewhile

import torch.fx

from profiler_ext.capture.lineage.nested_calls import calls_on_way
from profiler_ext.capture.lineage.stage import Lineages, Stage
from profiler_ext.recall.dynamo_graph import DynamoGraph, RegionCall, Source
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
    """Lead the nodes of a region that was traced for one call to the modules of this call."""
    dynamo, caller = stage.dynamo, stage.caller
    again = dynamo.called_again if dynamo else {}
    if not again or caller is None:
        return {}
    way = [call for call, _ in calls_on_way(stage.prefix, caller) if call is not None]
    named = [fx.source_fns(call.meta) for call in reversed(way)]
    calls = [again[name] for name in named if name in again]
    lineages = {node.name: stage.lineages[node.name] for node in stage.nodes if calls}
    return {name: functools.reduce(_of_call, calls, own) for name, own in lineages.items()}


def _of_call(own: Lineage, call: RegionCall) -> Lineage:
    """Return where a node stands at a call; of other code than was traced, at the call itself."""
    if any(module.path in call.unlike for module in own.modules):
        return replace(own, stack=call.here.stack, modules=call.here.modules)
    traced, length = call.traced.stack, len(call.traced.stack)
    is_within = own.stack[:length] == traced
    stack = (*call.here.stack, *own.stack[length:]) if is_within else own.stack
    return replace(own, stack=stack, modules=_of_modules(own.modules, call))


def _of_modules(modules: tuple[ModuleFrame, ...], call: RegionCall) -> tuple[ModuleFrame, ...]:
    """Return the modules on the way as far as this call tells them."""
    around = tuple(module for module in call.traced.modules if module.path)
    inner = modules[len(around) :] if modules[: len(around)] == around else modules
    led = [(call.module(module.path), module.class_name) for module in inner]
    known = takewhile(lambda each: each[0] is not None, led)
    moved = tuple(ModuleFrame(path, name) for path, name in known if path is not None)
    here = tuple(module for module in call.here.modules if module.path)
    return (*here, *moved) or call.here.modules
