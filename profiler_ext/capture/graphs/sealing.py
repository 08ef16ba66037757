"""The provenance of a graph, made with its artifact and checked against the wrapper's text."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch.fx

from profiler_ext.capture.graphs import fx_nodes
from profiler_ext.capture.graphs.autotuned import autotuned_sites
from profiler_ext.capture.graphs.call_sites import PendingCall, PendingSite, partial_sum_site
from profiler_ext.capture.graphs.compiles import Compiles
from profiler_ext.capture.graphs.intermediates import passed_between
from profiler_ext.capture.lineage.nested_graphs import inner_prefix
from profiler_ext.capture.lineage.stage import Compilation, JointGraph, fingerprint_of
from profiler_ext.recall.dynamo_graph import DynamoGraph
from profiler_ext.recall.lines import bound
from profiler_ext.recall.wrapper_calls import WrapperCall, wrapper_calls
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.provenance import (
    Autotuned,
    CallSite,
    FxNode,
    Gap,
    Intermediate,
    NestedIn,
    Provenance,
)
from profiler_ext.records.vocabulary import SiteKind
from profiler_ext.store import with_digest
from profiler_ext.torch_compat import autotuning, fusions, fx, inductor, inputs, process, schedules

Entries = Sequence[PendingSite | PendingCall]


@dataclass(frozen=True, slots=True)
class PlacedSite:
    """A pending site at its place."""

    site: PendingSite
    path: str  # through nested graphs: ``3/1`` is the second site of what site 3 calls
    prefix: str = ""  # of its graph's nodes; ``""`` for the outermost
    caller: torch.fx.Node | None = None  # the outermost graph's node that calls its graph
    function: str = "call"  # of the wrapper
    within: tuple[NestedIn, ...] = ()  # the calls of nested graphs around it, outermost first
    lowering: Any = None  # the ``GraphLowering`` that it is a site of

    def without_nodes(self) -> PlacedSite:
        """Return the place of a site whose nodes are unknown."""
        return replace(self, site=self._computing(()))

    def replacing_caller(self, node: torch.fx.Node, outer_site: PlacedSite) -> PlacedSite:
        """Return the place of a site that computes a node of the outer graph."""
        return replace(self, site=self._computing((node,)), prefix=outer_site.prefix)

    def _computing(self, nodes: tuple[torch.fx.Node, ...]) -> PendingSite:
        graph = nodes[0].graph if nodes else self.site.graph
        return replace(
            self.site,
            nodes=nodes,
            inlined=(),
            limits=(),
            graph=graph,
            is_commented=False,
            values=(),
        )


def placed_sites(graph: Any, entries_of: Callable[[Any], Entries]) -> list[PlacedSite]:
    """Return all sites of a graph in program order; a nested graph's stand at each call."""
    return list(_placed(entries_of(graph), entries_of, PlacedSite(_NO_SITE, "", lowering=graph)))


def _placed(
    entries: Entries, entries_of: Callable[[Any], Entries], outer_site: PlacedSite
) -> Iterator[PlacedSite]:
    for number, entry in enumerate(entries):
        path = f"{outer_site.path}/{number}" if outer_site.path else str(number)
        if isinstance(entry, PendingSite):
            yield replace(outer_site, site=entry, path=path)
            continue
        outer = entry.node.name if entry.node is not None else f"call_{number}"
        for nested in entry.graphs:
            prefix = outer_site.prefix + inner_prefix(outer, nested.name, len(entry.graphs))
            caller = outer_site.caller or entry.node
            within = (*outer_site.within, NestedIn(path, nested.part))
            inner = PlacedSite(
                _NO_SITE, path, prefix, caller, nested.function, within, nested.graph
            )
            inside = _placed(entries_of(nested.graph), entries_of, inner)
            if nested.replaces_caller and entry.node is not None:
                inside = (placed.replacing_caller(entry.node, outer_site) for placed in inside)
            yield from inside


_NO_SITE: Any = None


_LIBRARY = (SiteKind.EXTERN, SiteKind.USER_TRITON)


def contradicted(
    sites: Sequence[PlacedSite], calls: Mapping[str, Sequence[WrapperCall]]
) -> frozenset[int]:
    """Return the indices of call sites whose launch lists other ops in its comment."""
    # Above each launch Inductor writes the ATen ops of a superset of its nodes. Without a comment,
    # or if a function has more launches than sites, nothing is contradicted.
    called: dict[tuple[str, str], list[tuple[int, PlacedSite]]] = {}
    for at, placed in enumerate(sites):
        called.setdefault((placed.function, placed.prefix), []).append((at, placed))
    return frozenset(
        at
        for (function, _), own in called.items()
        for at, placed, call in _pairs(own, calls.get(function, ()))
        if placed.site.is_commented and call.ops and not call.ops >= _ops(placed)
    )


def _pairs(
    own: list[tuple[int, PlacedSite]], calls: Sequence[WrapperCall]
) -> Iterator[tuple[int, PlacedSite, WrapperCall]]:
    """Match sites to launches: by order among all, or among the generated kernels."""
    users = {placed.site.kernel for _, placed in own if placed.site.kind is SiteKind.USER_TRITON}
    if len(own) != len(calls):
        own = [(at, placed) for at, placed in own if placed.site.kind not in _LIBRARY]
        calls = [call for call in calls if call.generated and call.callee not in users]
    if len(own) == len(calls):
        yield from ((at, placed, call) for (at, placed), call in zip(own, calls, strict=True))


def _ops(placed: PlacedSite) -> frozenset[str]:
    ops: Iterable[str | None] = (fx.commented_op(node) for node in placed.site.nodes)
    return frozenset(op for op in ops if op is not None)


_GENERATED = (SiteKind.TRITON, SiteKind.TRITON_TEMPLATE, SiteKind.CPP)
_Calls = dict[str, tuple[WrapperCall, ...]]
_NESTED = "where nodes of nested graphs come from"
_INPUTS = "where the inputs come from that a CUDA graph copies"
_HELD = "which modules hold the inputs of a part"
_BUCKETS = "which collectives a bucket serves"
_PASSED = "the buffers that pass between kernels"
_CHOSEN = "what autotuning chose among"
_SUMS = "the last stages of reductions that run eagerly"
_CHECK = "the check of call sites against the generated code"
_UNCHECKED = Gap(GapReason.CALL_SITES_UNVERIFIED, "the wrapper's text could not be compared")


_Inputs = Callable[[], Iterable[torch.fx.Node]]


def seal(
    compiles: Compiles,
    graph: Any,
    gm: torch.fx.GraphModule,
    source: str,
    failed: Callable[[], tuple[Gap, ...]] = tuple,
    copied: _Inputs = tuple,
) -> Provenance:
    """Make the provenance of a graph that was just compiled.

    Args:
        source: the text of the generated wrapper.
        copied: the inputs that a CUDA graph of it may copy.
    """
    sites, unverified = _checked_sites(compiles, source, graph)
    is_backward = inductor.graph_is_backward(graph)
    compilation, region, try_run = compilation_of(compiles, gm), compiles.region, compiles.try_run
    nodes = fx_nodes.describe_nodes(gm.graph.nodes, compilation)
    nodes += try_run(_NESTED, fx_nodes.describe_nested, _nested_nodes(sites), compilation) or ()
    nodes += try_run(_INPUTS, _describe_inputs, copied, compilation) or ()
    sealed = [p.site.sealed(n, p.path, p.prefix, p.within, try_run) for n, p in enumerate(sites)]
    split = try_run(_BUCKETS, fx_nodes.split_buckets, sealed, gm.graph.nodes, compilation)
    call_sites, parts = split or (_without_bucket_nodes(sealed, gm.graph.nodes, compilation), ())
    joint = compilation.joint_of(gm.graph)
    dynamo = compiles.traced_from(joint)
    held = try_run(_HELD, _parameter_inputs, gm, dynamo)
    provenance = Provenance(
        digest="",
        torch_version=process.version(),
        is_backward=is_backward or bool(region and region.outer_graph.is_backward),
        is_inference=inductor.graph_is_inference(graph)
        and not (region and region.is_differentiated),
        joint=joint.id or None if joint else None,
        dynamo_digest=None,
        nodes=(*nodes, *parts),
        entry_calls=compiles.inner.order if is_backward and compiles.inner else (),
        call_sites=call_sites,
        gaps=(*unverified, *failed()),
        # Of a part whose inputs are unknown, no module is known.
        parameter_inputs=() if held is None else held.paths,
        intermediates=try_run(_PASSED, _intermediates, sites, compiles.scheduled) or (),
        fusion_options=_fusion_options(compiles.scheduled(graph)),
        autotuned=try_run(_CHOSEN, _autotuned, sites, compiles.selections) or (),
        saved_values=None if is_backward else _saved_values(compiles.saved_of(joint)),
    )
    return with_digest(bound(provenance, dynamo))


def _checked_sites(
    compiles: Compiles, source: str, graph: Any
) -> tuple[list[PlacedSite], tuple[Gap, ...]]:
    """Return the call sites that match the wrapper's text, and gaps for the others."""
    try_run = compiles.try_run
    calls = try_run(_CHECK, wrapper_calls, source) or {}
    sites = placed_sites(graph, compiles.sites)
    sites = try_run(_SUMS, _with_partial_sums, sites, calls.get("call", ()), graph) or sites
    wrong = try_run(_CHECK, contradicted, sites, calls) or frozenset()
    mismatches = try_run(_CHECK, _contradictions, sites, calls)
    mismatches = (_UNCHECKED,) if mismatches is None else mismatches
    unverified = (*mismatches, *_unverified_gaps(sites, wrong))
    return [s.without_nodes() if at in wrong else s for at, s in enumerate(sites)], unverified


def _intermediates(
    sites: Sequence[PlacedSite], scheduled: Callable[[Any], fusions.Schedule | None]
) -> tuple[Intermediate, ...]:
    """The buffers that pass between the kernels of each graph, at each call of a nested one."""
    kernels: dict[str, dict[str, int]] = {}
    schedules: dict[str, fusions.Schedule | None] = {}
    for at, placed in enumerate(sites):
        outer = placed.path.rpartition("/")[0] + placed.function
        kernels.setdefault(outer, {}).update(dict.fromkeys(placed.site.operations, at))
        schedules.setdefault(outer, scheduled(placed.lowering))
    return tuple(
        passed
        for outer, schedule in schedules.items()
        if schedule is not None
        for passed in passed_between(schedule, kernels[outer])
    )


def _autotuned(
    sites: Sequence[PlacedSite], selections_of: Callable[[Any], autotuning.Selections]
) -> tuple[Autotuned, ...]:
    selections = [selections_of(placed.lowering) for placed in sites]
    return autotuned_sites((placed.site for placed in sites), selections)


def _saved_values(reasons: Mapping[str, str] | None) -> tuple[tuple[str, str], ...] | None:
    return None if reasons is None else tuple(reasons.items())


def _fusion_options(schedule: fusions.Schedule | None) -> tuple[str, ...]:
    return () if schedule is None else schedule.options


def _describe_inputs(copied: _Inputs, compilation: Compilation) -> tuple[FxNode, ...]:
    return fx_nodes.describe_inputs(copied(), compilation)


class _ModuleInputs(NamedTuple):
    """The inputs of a part's graph that modules hold; ``None`` of a graph that is no part."""

    paths: tuple[tuple[int, int, str], ...] | None


def _parameter_inputs(gm: torch.fx.GraphModule, dynamo: DynamoGraph | None) -> _ModuleInputs:
    return _ModuleInputs(fx_nodes.parameter_inputs(inputs.all_inputs(gm), dynamo))


def _without_bucket_nodes(
    sites: Iterable[CallSite], nodes: Iterable[torch.fx.Node], compilation: Compilation
) -> tuple[CallSite, ...]:
    """Return call sites without the nodes of possible buckets, which serve several."""
    made = {node.name for node in nodes if compilation.made_from(node)}
    return tuple(
        site
        if made.isdisjoint(site.nodes)
        else dataclasses.replace(site, nodes=(), weights=(), values=())
        for site in sites
    )


def compilation_of(compiles: Compiles, gm: torch.fx.GraphModule) -> Compilation:
    """Return what is known of the current compile, which this graph belongs to."""
    inner, region = compiles.inner, compiles.region
    known: dict[torch.fx.Graph, JointGraph | None] = {}

    def joint_of(graph: torch.fx.Graph) -> JointGraph | None:
        if region is not None:
            return region.graph if graph is gm.graph else region.body
        if graph not in known:
            fingerprint = (
                inner.fingerprint if inner and graph is gm.graph else fingerprint_of(graph)
            )
            known[graph] = compiles.joint_of(fingerprint)
        return known[graph]

    return Compilation(
        joint_of=joint_of,
        dynamo=compiles.dynamo,
        entered=inner.entered if inner else frozenset(),
        replaced=inner.replaced if inner else {},
        try_run=compiles.try_run,
        lost=inner.lost if inner else frozenset(),
    )


def _nested_nodes(sites: list[PlacedSite]) -> dict[str, fx_nodes.Nested]:
    nested: dict[str, fx_nodes.Nested] = {}
    for placed in sites:
        for name, node in placed.site.qualified(placed.prefix):
            if "/" in name:
                carriers = (n for n in placed.site.nodes if name.startswith(f"{n.name}/"))
                nested[name] = fx_nodes.Nested(node, placed.caller or next(carriers, None))
    return nested


def _with_partial_sums(
    sites: list[PlacedSite], calls: tuple[WrapperCall, ...], graph: Any
) -> list[PlacedSite]:
    """Add the eager last stage of mix-order reductions where the wrapper's text has it.

    Torch reports no call site for it (``torch/_inductor/codegen/simd.py``,
    ``_codegen_mix_order_reduction``).
    """
    if not any(call.partial for call in calls):
        return sites
    remaining = iter(sites)
    merged: list[PlacedSite] = []
    for call in calls:
        node = schedules.buffer_value(graph, call.buffer) if call.partial and call.buffer else None
        if node is not None and call.buffer is not None:
            site = partial_sum_site(node, call.buffer, call.callee)
            merged.append(PlacedSite(site, f"{len(merged)}", lowering=graph))
        elif call.generated:
            merged += _up_to(remaining, call.callee)
    return [
        placed if placed.prefix else dataclasses.replace(placed, path=str(number))
        for number, placed in enumerate([*merged, *remaining])
    ]


def _up_to(remaining: Iterator[PlacedSite], callee: str) -> list[PlacedSite]:
    taken = []
    for placed in remaining:
        taken.append(placed)
        if placed.site.kernel == callee and not placed.prefix:
            break
    return taken


def _contradictions(sites: list[PlacedSite], calls: _Calls) -> tuple[Gap, ...]:
    """Compare the generated kernels in the text with the sites, function by function."""
    if not calls and any(placed.site.kind in _GENERATED for placed in sites):
        return (Gap(GapReason.CALL_SITES_UNVERIFIED, "the wrapper is not Python text"),)
    expected = _recorded(sites)
    users = {p.site.kernel for p in sites if p.site.kind is SiteKind.USER_TRITON}
    in_text = {
        name: [c.callee for c in called if c.generated and c.callee not in users]
        for name, called in calls.items()
    }
    wrong = [name for name, kernels in expected.items() if in_text.get(name, []) != kernels]
    wrong += [name for name, kernels in in_text.items() if kernels and name not in expected]
    if not wrong:
        return ()
    return (Gap(GapReason.CALL_SITES_UNVERIFIED, f"the wrapper's text differs in {wrong}"),)


def _unverified_gaps(sites: list[PlacedSite], wrong: Collection[int]) -> tuple[Gap, ...]:
    """The gap for sites whose nodes were dropped."""
    names = sorted({sites[at].site.kernel for at in wrong})
    detail = f"the generated code's comments name other ops for {names}"
    return (Gap(GapReason.CALL_SITES_UNVERIFIED, detail),) if names else ()


def _recorded(sites: list[PlacedSite]) -> dict[str, list[str]]:
    """The generated kernels of each function, as recorded for its first call."""
    first: dict[str, str] = {}
    kernels: dict[str, list[str]] = {}
    for placed in sites:
        if first.setdefault(placed.function, placed.prefix) == placed.prefix:
            own = kernels.setdefault(placed.function, [])
            if placed.site.kind in _GENERATED:
                own.append(placed.site.kernel)
    return kernels
