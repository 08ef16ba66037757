"""Owns what torch itself says of a node, and the names that the user has for its modules."""

from __future__ import annotations

from dataclasses import replace

from profiler_ext.capture.lineage.joint_graph import Lineages
from profiler_ext.capture.lineage.stage import Stage
from profiler_ext.capture.traces.metadata import lineage_of
from profiler_ext.capture.traces.module_paths import module_frames
from profiler_ext.recall.dynamo_graph import DynamoGraph
from profiler_ext.records import ModuleFrame


def own_metadata(stage: Stage) -> Lineages:
    """Say what each node's own metadata says."""
    return {node.name: lineage_of(node.meta) for node in stage.nodes}


def modules_of_the_user(stage: Stage) -> Lineages:
    """Say each node's modules by their paths from the model that the user holds."""
    # Most nodes share their modules, and to compare all takes longer than to name each once.
    named = {id(each.modules): each.modules for each in stage.lineages.values()}
    users = {key: user_modules(modules, stage.dynamo) for key, modules in named.items()}
    others = {key: modules for key, modules in users.items() if modules != named[key]}
    return {
        name: replace(own, modules=others[id(own.modules)])
        for name, own in stage.lineages.items()
        if id(own.modules) in others
    }


def user_modules(
    modules: tuple[ModuleFrame, ...], dynamo: DynamoGraph | None
) -> tuple[ModuleFrame, ...]:
    """Return modules as the user names them; of none, the one whose own method was compiled.

    Args:
        modules: modules as Dynamo spells them, from the root inwards.
        dynamo: the Dynamo graph of the same compile, if it is known.
    """
    stack = tuple((each.path, each.class_name) for each in modules)
    if dynamo is None:
        return module_frames(stack, ())
    return module_frames(stack, dynamo.roots, dynamo.own, dynamo.held)
