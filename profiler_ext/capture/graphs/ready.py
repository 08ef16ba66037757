"""Owns what capture has seen of an artifact when it becomes ready, as recall asks for it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from profiler_ext.capture.graphs.compiles import Compiles, InnerCompile
from profiler_ext.capture.graphs.sealing import compilation_of
from profiler_ext.capture.nodes.fx_nodes import nodes_with_lineage
from profiler_ext.capture.nodes.inputs import describe_inputs, held_inputs
from profiler_ext.capture.nodes.nested import describe_nested, nested_nodes
from profiler_ext.capture.nodes.regions import Region
from profiler_ext.recall.dynamo_graph import DynamoGraph
from profiler_ext.recall.generated_code import GeneratedCode
from profiler_ext.recall.truths import ReadyArtifact, TracedGraph
from profiler_ext.store import is_current
from profiler_ext.torch_compat import inductor, inputs, process


def ready_artifact(
    compiles: Compiles,
    artifact: Any,
    *,
    is_backward: bool,
    is_kept: bool,
    may_have_record: bool,
) -> ReadyArtifact:
    """Return what was seen of an artifact that has become ready.

    Args:
        compiles: what was seen of compiles.
        artifact: the ``CompiledFxGraph``.
        is_backward: it runs as a backward graph.
        is_kept: what is known of it may be kept in the store.
        may_have_record: it carries a record, or the store has one.
    """
    inner, on_artifact = compiles.inner, getattr(artifact, inductor.PROVENANCE_ATTRIBUTE, None)
    sealed = inner.sealed if inner else None
    has_record = sealed is not None or (on_artifact is not None and is_current(on_artifact))
    return ReadyArtifact(
        key=inductor.cache_key(artifact),
        code=_code_of(artifact, is_backward, has_record=has_record),
        on_artifact=on_artifact,
        sealed=sealed,
        is_compiled=inner is not None and inner.is_compiled,
        is_compiled_in_child=inductor.compiles_in_child(),
        is_kept=is_kept,
        dynamo=_dynamo(compiles, inner),
        traced=_traced(compiles, inner) if may_have_record else None,
    )


def _dynamo(compiles: Compiles, inner: InnerCompile | None) -> DynamoGraph | None:
    """Return what the artifact's graph was traced from: of a backward, when its forward was."""
    joint = None if inner is None else compiles.joint_of(inner.fingerprint)
    return compiles.traced_from(joint)


def _code_of(artifact: Any, is_backward: bool, *, has_record: bool) -> Callable[[], GeneratedCode]:
    """Return what gives the text of an artifact; of one with a record only while it is there."""
    if not has_record:
        return partial(_same_code, _code(artifact, is_backward))
    return partial(_code_if_alive, weakref.ref(artifact), is_backward)


def _same_code(code: GeneratedCode) -> GeneratedCode:
    return code


def _code_if_alive(artifact: weakref.ref[Any], is_backward: bool) -> GeneratedCode:
    alive = artifact()
    if alive is None:
        return GeneratedCode("", "", is_backward, is_inference=False, torch_version="")
    return _code(alive, is_backward)


def _code(artifact: Any, is_backward: bool) -> GeneratedCode:
    return GeneratedCode(
        source=inductor.wrapper_source(artifact) or "",
        printed=inductor.printed_graph(artifact) or "",
        is_backward=is_backward,
        is_inference=inductor.artifact_is_inference(artifact),
        torch_version=process.version(),
    )


def _traced(compiles: Compiles, inner: InnerCompile | None) -> TracedGraph | None:
    """Describe the graph that a cache had the code of; one that was compiled is sealed."""
    if inner is not None:
        return None if inner.is_compiled or inner.sealed else _freshly_traced(compiles, inner)
    return None if compiles.region is None else _region(compiles.region)


def _freshly_traced(compiles: Compiles, inner: InnerCompile) -> TracedGraph:
    compilation = compilation_of(compiles, inner.gm)
    nodes = nodes_with_lineage(inner.gm.graph.nodes, compilation)
    nodes += describe_nested(nested_nodes(inner.gm), compilation)
    nodes += describe_inputs(inputs.all_inputs(inner.gm), compilation)
    joint = compilation.joint_of(inner.gm.graph)
    held = held_inputs(inputs.all_inputs(inner.gm), compiles.traced_from(joint))
    return TracedGraph(nodes, joint.id if joint else None, held_inputs=held)


def _region(region: Region) -> TracedGraph:
    return TracedGraph(
        nodes=region.nodes,
        joint=region.graph.id or None,
        is_region=True,
        is_backward=region.outer_graph.is_backward,
        is_inference=not region.is_differentiated,
    )
