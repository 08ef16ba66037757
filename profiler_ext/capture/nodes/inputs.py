"""Owns the records of a graph's inputs that change with each call; a CUDA graph copies those.

An argument has the line that names the compiled function's arguments; a gradient that comes
from outside the line of the output that it is the gradient of.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import torch.fx

from profiler_ext.capture.nodes.dynamo_graphs import DynamoGraph
from profiler_ext.capture.nodes.fx_nodes import Surroundings, tensor_spec
from profiler_ext.capture.nodes.module_paths import module_frames
from profiler_ext.capture.nodes.stacks import parse_stack
from profiler_ext.records import ForwardEvidence, FxNode
from profiler_ext.torch_compat import fx, inputs
from profiler_ext.torch_compat.names import fx_names

INPUT = "placeholder"
"""The target of an input's record."""


def describe_inputs(given: Iterable[torch.fx.Node], around: Surroundings) -> tuple[FxNode, ...]:
    """Return the records of inputs, those that are tensors.

    Args:
        given: inputs of the graph that Inductor compiled.
        around: what the records need.
    """
    return tuple(_describe(node, around) for node in given if fx.tensors(node.meta))


def _describe(node: torch.fx.Node, around: Surroundings) -> FxNode:
    outputs = tuple(tensor_spec(value) for value in fx.tensors(node.meta))
    own = FxNode(name=node.name, target=INPUT, entry_name=node.name, outputs=outputs)
    if (argument := inputs.argument_of(node)) is not None:
        return _argument(own, argument, around.dynamo)
    output = inputs.output_of_gradient(node)
    return own if output is None else _gradient(own, output, node, around)


def _argument(own: FxNode, number: int, dynamo: DynamoGraph | None) -> FxNode:
    names = dynamo.arguments[number : number + 1] if dynamo else ()
    source = dynamo.sources.get(names[0]) if dynamo and names else None
    if source is None:
        return own
    return dataclasses.replace(own, source_fns=names[0], stack=source.stack, modules=source.modules)


def _gradient(own: FxNode, output: int, node: torch.fx.Node, around: Surroundings) -> FxNode:
    """Return the record of a gradient: it belongs where the output's value was made."""
    joint = around.joint_of(node.graph)
    made = joint.outputs.get(output) if joint else None
    if made is None:
        return own
    name, meta = made
    dynamo = around.dynamo
    return dataclasses.replace(
        own,
        stack=parse_stack(fx.text(meta, fx_names.STACK_TRACE)),
        modules=module_frames(
            fx.module_stack(meta), dynamo.roots if dynamo else (), dynamo.own if dynamo else None
        ),
        source_fns=fx.source_fns(meta),
        forward_node=name,
        forward_evidence=ForwardEvidence.GRADIENT_OF_OUTPUT,
    )
