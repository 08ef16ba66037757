"""Owns the nodes of repeated regions: torch traces a region once, on the modules of one call.

Dynamo's graph tells where each node stands at the other calls. Where it is not known which of them
a node belongs to, it stands as far as they agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch.fx

from profiler_ext.capture.lineage.joint_graph import Lineages
from profiler_ext.capture.lineage.nested_calls import calls_on_way
from profiler_ext.capture.lineage.own import user_modules
from profiler_ext.capture.lineage.stage import Stage
from profiler_ext.capture.traces.metadata import lineage_of
from profiler_ext.recall.dynamo_graph import DynamoGraph
from profiler_ext.recall.places import Source
from profiler_ext.recall.region_calls import Run, common_place
from profiler_ext.records import Lineage
from profiler_ext.torch_compat import fx


def place_of_run(stage: Stage) -> Lineages:
    """Lead the nodes of a region that was traced for one call to the lines and modules of this."""
    dynamo, caller = stage.dynamo, stage.caller
    if dynamo is None or not dynamo.runs.of_call:
        return {}
    if caller is None:
        return _in_place_of_calls(stage, dynamo)
    way = [call for call, _ in calls_on_way(stage.prefix, caller) if call is not None]
    runs = _runs_on(way, dynamo)
    return {name: _at(own, runs) for name, own in stage.lineages.items()} if runs else {}


def _in_place_of_calls(stage: Stage, dynamo: DynamoGraph) -> Lineages:
    """Say where nodes stand of a region whose graph a pass put in the place of its calls."""
    of_node, lineages = dynamo.runs.of_node, stage.lineages.items()
    found = {name: of_node.get((own.source_fns, own.stack)) for name, own in lineages}
    return {name: _at(stage.lineages[name], runs) for name, runs in found.items() if runs}


def _runs_on(way: Sequence[torch.fx.Node], dynamo: DynamoGraph) -> Sequence[Run]:
    """Return the runs that are led to by calls, which also say where they stand."""
    names = [fx.source_fns(call.meta) for call in way]
    while names and names[-1] not in dynamo.runs.of_call:
        names.pop()  # a pass made that call
    if not names:
        return ()
    said = lineage_of(way[len(names) - 1].meta)
    modules = user_modules(said.modules, dynamo) if said.modules else ()
    on_way = [run for run in dynamo.runs.of_call[names[-1]] if run.is_on(names)]
    found = _those(on_way, lambda run: bool(said.stack) and run.call.stack == said.stack)
    return _those(found, lambda run: bool(modules) and run.call.modules == modules)


def _those(runs: Sequence[Run], fits: Callable[[Run], bool]) -> Sequence[Run]:
    return [run for run in runs if fits(run)] or runs


def _at(own: Lineage, runs: Sequence[Run]) -> Lineage:
    there = Source(own.stack, own.modules)
    place = common_place([run.place(there, own.source_fns) for run in runs])
    return replace(own, stack=place.stack, modules=place.modules)
