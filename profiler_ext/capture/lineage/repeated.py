"""Owns the nodes of repeated regions: torch traces a region once, on the modules of one call.

Dynamo's graph tells where each node stands at the other calls. Where it is not known which of them
a node belongs to, it stands as far as they agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch.fx

from profiler_ext.capture.lineage.joint_graph import Lineages
from profiler_ext.capture.lineage.nested_calls import calls_to_graph
from profiler_ext.capture.lineage.own import user_modules
from profiler_ext.capture.lineage.stage import Stage
from profiler_ext.capture.traces.metadata import lineage_of
from profiler_ext.recall.dynamo_graph import DynamoGraph
from profiler_ext.recall.places import Source
from profiler_ext.recall.region_calls import Run, common_source
from profiler_ext.records import Lineage
from profiler_ext.torch_compat import fx


def place_of_run(stage: Stage) -> Lineages:
    """Lead the nodes of a region that was traced for one call to the lines and modules of this."""
    dynamo, caller = stage.dynamo, stage.caller
    if dynamo is None or not dynamo.runs.of_call:
        return {}
    if caller is None:
        return _in_place_of_calls(stage, dynamo)
    call_path = [call for call, _ in calls_to_graph(stage.prefix, caller) if call is not None]
    runs = _runs_on(call_path, dynamo)
    return {name: _lineage_of_runs(own, runs) for name, own in stage.lineages.items()} if runs else {}


def _in_place_of_calls(stage: Stage, dynamo: DynamoGraph) -> Lineages:
    """Say where nodes stand of a region whose graph a pass put in the place of its calls."""
    of_node, lineages = dynamo.runs.of_node, stage.lineages.items()
    matching = {name: of_node.get((own.source_fns, own.stack)) for name, own in lineages}
    return {name: _lineage_of_runs(stage.lineages[name], runs) for name, runs in matching.items() if runs}


def _runs_on(call_path: Sequence[torch.fx.Node], dynamo: DynamoGraph) -> Sequence[Run]:
    """Return the runs that are led to by calls, which also say where they stand."""
    names = [fx.source_fns(call.meta) for call in call_path]
    while names and names[-1] not in dynamo.runs.of_call:
        names.pop()  # a pass made that call
    if not names:
        return ()
    own_lineage = lineage_of(call_path[len(names) - 1].meta)
    modules = user_modules(own_lineage.modules, dynamo) if own_lineage.modules else ()
    on_path = [run for run in dynamo.runs.of_call[names[-1]] if run.is_on(names)]
    matching = _matching_or_all(on_path, lambda run: bool(own_lineage.stack) and run.call.stack == own_lineage.stack)
    return _matching_or_all(matching, lambda run: bool(modules) and run.call.modules == modules)


def _matching_or_all(runs: Sequence[Run], predicate: Callable[[Run], bool]) -> Sequence[Run]:
    return [run for run in runs if predicate(run)] or runs


def _lineage_of_runs(own: Lineage, runs: Sequence[Run]) -> Lineage:
    traced_place = Source(own.stack, own.modules)
    place = common_source([run.place(traced_place, own.source_fns) for run in runs])
    return replace(own, stack=place.stack, modules=place.modules)
