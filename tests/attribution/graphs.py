"""How a test writes a compiled graph by hand: nodes, call sites, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from profiler_ext.records.evidence import LineEvidence
from profiler_ext.records.lineage import Frame, ModuleFrame
from profiler_ext.records.provenance import CallSite, FxNode, Gap, GraphInstance, Provenance
from profiler_ext.records.vocabulary import CacheState, SiteKind
from tests.fx_nodes import changed, fx_node

MODEL = "/home/me/model.py"


def node(name: str, line: int, **changes: Any) -> FxNode:
    """Return a node that stands on a line of the model."""
    made = fx_node(
        name,
        f"aten.{name}.default",
        seq_nr=line,
        stack=(Frame(MODEL, line, "forward", f"{name}(x)"),),
        modules=(ModuleFrame("", "Net"), ModuleFrame(f"layers.{line}", "Layer")),
        partitioner_tag="is_forward",
    )
    return changed(made, **changes)


def triton(kernel: str, *nodes: str, weights: Sequence[int] = ()) -> CallSite:
    """Return a call site of a generated kernel."""
    return _site(SiteKind.TRITON, kernel, None, nodes, weights)


def extern(op: str, *nodes: str) -> CallSite:
    """Return a call site of a library's kernel, ``mm`` for ``aten::mm``."""
    return _site(SiteKind.EXTERN, f"extern_kernels.{op}", f"aten::{op}", nodes, ())


def nameless(kernel: str, *nodes: str) -> CallSite:
    """Return a call site of which capture could not tell the operator's name."""
    return _site(SiteKind.EXTERN, kernel, None, nodes, ())


def cpp(kernel: str, *nodes: str) -> CallSite:
    """Return a call site of a C++ kernel."""
    return _site(SiteKind.CPP, kernel, None, nodes, ())


def user_triton(kernel: str, *nodes: str) -> CallSite:
    """Return a call site of a user's Triton kernel."""
    return _site(SiteKind.USER_TRITON, kernel, None, nodes, ())


def _site(
    kind: SiteKind, kernel: str, op: str | None, nodes: Sequence[str], weights: Sequence[int]
) -> CallSite:
    return CallSite(
        ordinal=0,
        path="0",
        kind=kind,
        kernel=kernel,
        op=op,
        nodes=tuple(nodes),
        weights=tuple(weights) or (1,) * len(nodes),
    )


def numbered(sites: Sequence[CallSite]) -> tuple[CallSite, ...]:
    """Return the sites with their ordinals."""
    return tuple(replace(site, ordinal=at, path=str(at)) for at, site in enumerate(sites))


def graph(
    nodes: Sequence[FxNode],
    sites: Sequence[CallSite],
    *,
    key: str | None = "fkey",
    is_backward: bool = False,
    is_inference: bool = False,
    evidence: LineEvidence = LineEvidence.COMPILED,
    gaps: tuple[Gap, ...] = (),
    **changes: Any,
) -> GraphInstance:
    """Return a graph instance; its digest names its call sites and nodes."""
    ordered = numbered(sites)
    provenance = Provenance(
        digest=str(hash((tuple(nodes), ordered))),
        torch_version="2.13.0",
        is_backward=is_backward,
        is_inference=is_inference,
        joint="joint0",
        dynamo_digest=None,
        nodes=tuple(nodes),
        call_sites=ordered,
        gaps=gaps,
    )
    made = GraphInstance(
        index=0,
        key=key,
        compile_id="0/0",
        is_backward=is_backward,
        cache_state=CacheState.MISS,
        cache_detail=None,
        compile_ns=0,
        output_module=None,
        provenance=provenance,
        nodes=tuple(changed(node, evidence=evidence) for node in nodes),
    )
    return replace(made, **changes)
