"""Lineage rules for one node: its metadata, what it replaced or wraps, graph inputs and outputs.

Upstream: https://github.com/pytorch/pytorch/pull/160542 (metadata of what is traced, opt-in),
https://github.com/pytorch/pytorch/pull/179113 (of every replacement).

Source: ``torch/_functorch/partitioners.py``, ``functionalize_rng_ops``, which copies no metadata.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch.fx

from profiler_ext.capture.lineage.stage import Compilation, Lineages, Stage, TracedFrom
from profiler_ext.capture.traces.metadata import ADD, PRODUCTS, NodeSnapshot, lineage_of, main_of
from profiler_ext.capture.traces.module_paths import module_frames
from profiler_ext.recall.dynamo_graph import DynamoGraph, Source
from profiler_ext.records.evidence import ForwardEvidence, Mechanism
from profiler_ext.records.lineage import Lineage, ModuleFrame
from profiler_ext.torch_compat import fx, inputs


def own_metadata(stage: Stage) -> Lineages:
    """Read each node's own metadata."""
    return {node.name: lineage_of(node.meta) for node in stage.nodes}


def modules_of_the_user(stage: Stage) -> Lineages:
    """Replace each node's modules with their paths from the user's model."""
    # Most nodes share their modules: comparing all is slower than naming each once.
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
    """Return modules with the user's paths; if there are none, the compiled method's module."""
    stack = tuple((each.path, each.class_name) for each in modules)
    if dynamo is None:
        return module_frames(stack, ())
    return module_frames(stack, dynamo.roots, dynamo.own, dynamo.held)


def replaced_by_pattern(stage: Stage) -> Lineages:
    """Fill what a node lacks from the node that it mainly replaced."""
    lineages: dict[str, Lineage] = {}
    for node in stage.nodes:
        rows = stage.compilation.replaced_by(node)
        main = main_of(rows)
        if main is not None:
            own = _without_addition(stage.lineages[node.name], main.lineage, rows)
            filled = own.filled_by(main.lineage)
            lineages[node.name] = filled if own.stack else filled.by(Mechanism.REPLACED)
    return lineages


def _without_addition(own: Lineage, main: Lineage, rows: Iterable[NodeSnapshot]) -> Lineage:
    """Return a node's own lineage without what a pattern copied from an addition to it."""
    # ``x + self.last(y)`` is ``addmm``, and so is the gradient of a tied weight.
    ops = {row.lineage.original_aten for row in rows}
    if main.original_aten not in PRODUCTS or ADD not in ops:
        return own
    own = replace(own, original_aten=None, seq_nr=None, is_gradient_acc=False)
    return replace(own, stack=(), modules=(), source_fns=())


def random_op(stage: Stage) -> Lineages:
    """Fill a wrapping call, which has no metadata, from the call that it wraps.

    Source: ``torch/_functorch/partitioners.py``, ``functionalize_rng_ops``.
    """
    lineages: dict[str, Lineage] = {}
    for node in stage.nodes:
        wrapped = stage.compilation.wrapped_by(node)
        if wrapped is not None and wrapped.lineage.is_known:
            own = stage.lineages[node.name]
            filled = own.filled_by(wrapped.lineage)
            lineages[node.name] = filled if own.stack else filled.by(Mechanism.RANDOM)
    return lineages


def member_of_bucket(stage: Stage) -> Lineages:
    """Give a bucket's node that serves one collective the place of that one."""
    # Bucketing (``torch/_inductor/fx_passes/bucketing.py``) copies the first collective's metadata.
    served = {node.name: bucket_members(node, stage.compilation) for node in stage.nodes}
    return {
        name: each[0].lineage.by(Mechanism.BUCKET)
        for name, each in served.items()
        if len(each) == 1
    }


def bucket_members(node: torch.fx.Node, compilation: Compilation) -> tuple[NodeSnapshot, ...]:
    """Return the collectives that a bucket's node serves; for a wait, their waits."""
    rows = compilation.made_from(node)
    if not rows or not all(fx.is_collective(row.lineage.original_aten) for row in rows):
        return ()
    waits = fx.is_wait(fx.original_aten(node.meta))
    return tuple(row for row in rows if fx.is_wait(row.lineage.original_aten) == waits)


def overwritten_by_pass(stage: Stage) -> Lineages:
    """Give a node, or what it replaced, the metadata from before a pass overwrote it."""
    # Removing a no-op copies its metadata to the node before it
    # (``torch/fx/node.py``, ``replace_all_uses_with(propagate_meta=True)``).
    was = stage.joint.findings.overwritten if stage.joint else {}
    return _overwritten_lineages(stage, was, Mechanism.OVERWRITTEN) if was else {}


def _overwritten_lineages(stage: Stage, known: Lineages, mechanism: Mechanism) -> Lineages:
    names = {node.name: stage.compilation.traced_name(node) or "" for node in stage.nodes}
    lineages: dict[str, Lineage] = {}
    for name, traced in names.items():
        if traced in known:
            lineages[name] = stage.lineages[name].traced_from(known[traced]).by(mechanism)
    return lineages


def region_of_graph(stage: Stage) -> Lineages:
    """Give a region's node the place of the node that it was traced from."""
    region = stage.joint.region if stage.joint else None
    if region is None:
        return {}
    return {node.name: _region_lineage(node, stage, region) for node in stage.nodes}


def _region_lineage(node: torch.fx.Node, stage: Stage, region: TracedFrom) -> Lineage:
    own, traced = stage.lineages[node.name], stage.compilation.traced_name(node) or ""
    outer = region.lineages.get(traced)
    # The number from the region's own trace belongs to no joint graph.
    lineage = own.traced_from(outer).by(Mechanism.REGION) if outer else replace(own, seq_nr=None)
    return replace(lineage, copied_from=lineage.copied_from or region.names.get(traced))


def gradient_of_output(stage: Stage) -> Lineages:
    """Give a gradient passed in the place of its output."""
    made = stage.joint.findings.outputs if stage.joint else {}
    outputs = {node.name: inputs.output_of_gradient(node) for node in stage.inputs if made}
    return {n: _of_output(made[at]) for n, at in outputs.items() if at is not None and at in made}


def _of_output(made: NodeSnapshot) -> Lineage:
    return Lineage(
        stack=made.lineage.stack,
        modules=made.lineage.modules,
        source_fns=made.lineage.source_fns,
        forward_node=made.name,
        forward_evidence=ForwardEvidence.GRADIENT_OF_OUTPUT,
    ).by(Mechanism.GRADIENT_OF_OUTPUT)


def argument_of_function(stage: Stage) -> Lineages:
    """Give an input, which CUDA graphs copy, the line of the function's signature."""
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
