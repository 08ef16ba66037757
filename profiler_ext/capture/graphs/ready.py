"""Owns what capture has seen of an artifact when it becomes ready, as recall asks for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from profiler_ext.capture.graphs.compiles import Compiles, InnerCompile
from profiler_ext.capture.graphs.sealing import compilation_of
from profiler_ext.capture.nodes.fx_nodes import describe_nodes
from profiler_ext.capture.nodes.inputs import describe_inputs
from profiler_ext.capture.nodes.nested import describe_nested, nested_nodes
from profiler_ext.capture.nodes.regions import Region
from profiler_ext.recall.generated_code import GeneratedCode
from profiler_ext.recall.truths import ReadyArtifact, TracedGraph
from profiler_ext.torch_compat import inductor, inputs, process


def ready_artifact(
    compiles: Compiles, artifact: Any, *, is_backward: bool, is_kept: bool
) -> ReadyArtifact:
    """Return what was seen of an artifact that has become ready.

    Args:
        compiles: what was seen of compiles.
        artifact: the ``CompiledFxGraph``.
        is_backward: it runs as a backward graph.
        is_kept: what is known of it may be kept in the store.
    """
    inner = compiles.inner
    return ReadyArtifact(
        key=inductor.cache_key(artifact),
        code=partial(_code, artifact, is_backward),
        riding=getattr(artifact, inductor.RIDING, None),
        sealed=inner.sealed if inner else None,
        is_compiled=inner is not None and inner.is_compiled,
        is_compiled_in_child=inductor.compiles_in_child(),
        is_kept=is_kept,
        dynamo=compiles.dynamo,
        traced=_traced(compiles, inner),
    )


def _code(artifact: Any, is_backward: bool) -> GeneratedCode:
    return GeneratedCode(
        source=inductor.wrapper_source(artifact) or "",
        printed=inductor.printed_graph(artifact) or "",
        is_backward=is_backward,
        is_inference=inductor.artifact_is_inference(artifact),
        torch_version=process.version(),
    )


def _traced(compiles: Compiles, inner: InnerCompile | None) -> Callable[[bool], TracedGraph] | None:
    if inner is not None:
        return partial(_fresh, compiles, inner)
    return None if compiles.region is None else partial(_region, compiles.region)


def _fresh(compiles: Compiles, inner: InnerCompile, with_inputs: bool) -> TracedGraph:
    compilation = compilation_of(compiles, inner.gm)
    nodes = describe_nodes(inner.gm.graph.nodes, compilation)
    nodes += describe_nested(nested_nodes(inner.gm), compilation)
    if with_inputs:
        nodes += describe_inputs(inputs.all_inputs(inner.gm), compilation)
    joint = compilation.joint_of(inner.gm.graph)
    return TracedGraph(nodes, joint.id if joint else None)


def _region(region: Region, _: bool) -> TracedGraph:
    return TracedGraph(
        nodes=region.nodes,
        joint=region.graph.id or None,
        is_region=True,
        is_backward=region.outer_graph.is_backward,
        is_inference=not region.is_differentiated,
    )
