"""Owns the records of a graph's inputs that change with each call; a CUDA graph copies those.

An argument has the line that names the compiled function's arguments; a gradient that comes
from outside the line of the output that it is the gradient of.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch.fx

from profiler_ext.capture.lineage.own import user_modules
from profiler_ext.capture.lineage.stage import Compilation
from profiler_ext.capture.traces.metadata import tensor_specs
from profiler_ext.recall.dynamo_graph import DynamoGraph
from profiler_ext.recall.truths import INPUT
from profiler_ext.records import ForwardEvidence, FxNode, Lineage, Mechanism
from profiler_ext.torch_compat import fx, inputs


def describe_inputs(given: Iterable[torch.fx.Node], compilation: Compilation) -> tuple[FxNode, ...]:
    """Return the records of inputs, those that are tensors.

    Args:
        given: inputs of the graph that Inductor compiled.
        compilation: what is known of its compile.
    """
    return tuple(_describe(node, compilation) for node in given if fx.tensors(node.meta))


def _describe(node: torch.fx.Node, compilation: Compilation) -> FxNode:
    outputs, output = tensor_specs(node.meta), inputs.output_of_gradient(node)
    lineage = Lineage()
    if (argument := inputs.argument_of(node)) is not None:
        lineage = _argument(argument, compilation.dynamo)
    elif output is not None:
        lineage = _gradient(output, node, compilation)
    return FxNode(node.name, INPUT, lineage, entry_name=node.name, outputs=outputs)


def _argument(number: int, dynamo: DynamoGraph | None) -> Lineage:
    names = dynamo.arguments[number : number + 1] if dynamo else ()
    source = dynamo.sources.get(names[0]) if dynamo and names else None
    if source is None:
        return Lineage()
    lineage = Lineage(source_fns=names[0], stack=source.stack, modules=source.modules)
    return lineage.by(Mechanism.ARGUMENT)


def _gradient(output: int, node: torch.fx.Node, compilation: Compilation) -> Lineage:
    """Return where a gradient belongs: where the output's value was made."""
    joint = compilation.joint_of(node.graph)
    made = joint.found.outputs.get(output) if joint else None
    if made is None:
        return Lineage()
    lineage = Lineage(
        stack=made.lineage.stack,
        modules=user_modules(made.lineage.modules, compilation.dynamo),
        source_fns=made.lineage.source_fns,
        forward_node=made.name,
        forward_evidence=ForwardEvidence.GRADIENT_OF_OUTPUT,
    )
    return lineage.by(Mechanism.GRADIENT_OF_OUTPUT)
