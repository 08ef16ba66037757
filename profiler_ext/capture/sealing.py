"""Owns the making of a provenance when a graph's artifact is made."""

from __future__ import annotations

from typing import Any

import torch.fx

from profiler_ext.capture.call_sites import PendingSite, partial_sum_site
from profiler_ext.capture.compiles import Compiles
from profiler_ext.capture.fx_nodes import Surroundings, describe_nodes
from profiler_ext.capture.wrapper_calls import WrapperCall, wrapper_calls
from profiler_ext.records import Gap, GapReason, Provenance, SiteKind
from profiler_ext.store import with_digest
from profiler_ext.torch_compat import inductor, process

_GENERATED = (SiteKind.TRITON, SiteKind.TRITON_TEMPLATE, SiteKind.CPP)


def seal(compiles: Compiles, artifact: Any, graph: Any, gm: torch.fx.GraphModule) -> Provenance:
    """Make the provenance of a graph that was just compiled.

    Args:
        compiles: what was seen while it was compiled.
        artifact: the ``CompiledFxGraph`` under construction.
        graph: its ``GraphLowering``.
        gm: the graph after all passes.

    Returns:
        The record, with its digest.
    """
    calls = wrapper_calls(inductor.wrapper_source(artifact) or "")
    sites = _with_partial_sums(compiles.sites(graph), calls, graph)
    around = surroundings(compiles, gm)
    return with_digest(
        Provenance(
            digest="",
            torch_version=process.version(),
            is_backward=bool(graph.is_backward),
            is_inference=inductor.graph_is_inference(graph),
            joint=around.joint.id if around.joint else None,
            dynamo_digest=around.dynamo.digest if around.dynamo else None,
            nodes=describe_nodes(gm.graph.nodes, around),
            call_sites=tuple(site.sealed(n) for n, site in enumerate(sites)),
            gaps=(*compiles.take_gaps(), *_contradictions(sites, calls)),
        )
    )


def surroundings(compiles: Compiles, gm: torch.fx.GraphModule) -> Surroundings:
    """Return what the records of a graph's nodes need from around it."""
    inner = compiles.inner
    names = frozenset(node.name for node in gm.graph.nodes)
    return Surroundings(
        joint=compiles.joint_of(inner.entered if inner else names),
        dynamo=compiles.dynamo,
        entered=inner.entered if inner else frozenset(),
        replaced=inner.replaced if inner else {},
    )


def _with_partial_sums(
    sites: list[PendingSite], calls: tuple[WrapperCall, ...], graph: Any
) -> list[PendingSite]:
    """Add the eager last stage of mix-order reductions where the wrapper's text has it.

    Upstream writes these lines without reporting a call site
    (``torch/_inductor/codegen/simd.py``, ``_codegen_mix_order_reduction``).
    """
    if not any(call.partial for call in calls):
        return sites
    waiting = iter(sites)
    merged = []
    for call in calls:
        node = inductor.buffer_value(graph, call.buffer) if call.partial and call.buffer else None
        if node is not None and call.buffer is not None:
            merged.append(partial_sum_site(node, call.buffer, call.callee))
        elif call.generated:
            merged += _up_to(waiting, call.callee)
    return [*merged, *waiting]


def _up_to(waiting: Any, callee: str) -> list[PendingSite]:
    taken = []
    for site in waiting:
        taken.append(site)
        if site.kernel == callee:
            break
    return taken


def _contradictions(sites: list[PendingSite], calls: tuple[WrapperCall, ...]) -> tuple[Gap, ...]:
    """The second rule: the generated kernels in the wrapper's text, in order, are the sites'."""
    if not calls and any(site.kind in _GENERATED for site in sites):
        return (Gap(GapReason.CALL_SITES_UNVERIFIED, "the wrapper is not Python text"),)
    expected = [site.kernel for site in sites if site.kind in _GENERATED]
    users = {site.kernel for site in sites if site.kind is SiteKind.USER_TRITON}
    found = [c.callee for c in calls if c.generated and c.callee not in users]
    if found == expected:
        return ()
    detail = f"{len(expected)} generated kernels recorded, {len(found)} in the wrapper's text"
    return (Gap(GapReason.CALL_SITES_UNVERIFIED, detail),)
