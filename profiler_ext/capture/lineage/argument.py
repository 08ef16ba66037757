"""Owns the lineage of an input that is an argument: the line that names the function's arguments.

A CUDA graph copies such an input before each replay.
"""

from __future__ import annotations

from profiler_ext.capture.lineage.joint_graph import Lineages
from profiler_ext.capture.lineage.stage import Stage
from profiler_ext.recall.dynamo_graph import DynamoGraph
from profiler_ext.recall.places import Source
from profiler_ext.records import Lineage, Mechanism
from profiler_ext.torch_compat import inputs


def argument_of_function(stage: Stage) -> Lineages:
    """Say of an input that it stands where the compiled function names its arguments."""
    lineages: dict[str, Lineage] = {}
    for node in stage.inputs:
        number = inputs.argument_of(node)
        for name, source in _named(number, stage.dynamo):
            own = Lineage(source_fns=name, stack=source.stack, modules=source.modules)
            lineages[node.name] = own.by(Mechanism.ARGUMENT)
    return lineages


def _named(number: int | None, dynamo: DynamoGraph | None) -> list[tuple[tuple[str, ...], Source]]:
    """Return the name and the place of an input of Dynamo's graph, if both are known."""
    names = () if number is None or dynamo is None else dynamo.arguments[number : number + 1]
    return [(name, dynamo.sources[name]) for name in names if dynamo and name in dynamo.sources]
