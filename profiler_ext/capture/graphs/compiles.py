"""Owns what is known while a graph is compiled, for each thread, until it is sealed.

A compile of one graph runs inside ``_compile_fx_inner``; autotuning may compile others
within it, so call sites are kept by the graph that they belong to.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch.fx

from profiler_ext.capture.graphs.earlier_stages import EarlierStages
from profiler_ext.capture.lineage.joint_graph import Fingerprint, fingerprint_of
from profiler_ext.capture.nodes.regions import OuterGraph, Region, fingerprint_of_outer_graph
from profiler_ext.capture.sites.call_sites import PendingCall, PendingSite
from profiler_ext.capture.traces.metadata import Replaced
from profiler_ext.isolation.alone import Alone, unguarded
from profiler_ext.recall.truths import Sealed
from profiler_ext.torch_compat import fx, inductor, process, regional_inductor

_KEPT_COMPILES = 16


@dataclass(slots=True)
class InnerCompile:
    """One ``_compile_fx_inner`` call: the graph as it entered, and what its passes did.

    Attributes:
        gm: the graph module; the passes change it in place.
        entered: names of the call nodes as it entered.
        order: names and targets, in order, of those that depend on an input.
        started_ns: when it began.
        replaced: for each graph what the post-grad passes' new nodes replaced.
        fingerprint: what tells the joint graph that it was cut from.
        misses: how often the FX graph cache had missed before.
        bypass: torch's reason why it bypassed the FX graph cache.
        is_compiled: an artifact was made, so this is no cache hit.
        sealed: the provenance and its bytes, once the graph was compiled; ``None`` on a cache hit.
        lost: what was not found of the post-grad passes, as the mechanism failed.
    """

    gm: torch.fx.GraphModule
    entered: frozenset[str]
    order: tuple[tuple[str, str], ...]
    started_ns: int
    replaced: dict[torch.fx.Graph, Replaced] = field(default_factory=dict)
    fingerprint: Fingerprint = frozenset()
    misses: int = 0
    bypass: str | None = None
    is_compiled: bool = False
    sealed: Sealed | None = None
    lost: frozenset[str] = frozenset()


@dataclass(slots=True)
class _CompileState:
    """What one thread knows of one compile, its nested graphs included."""

    inner: list[InnerCompile] = field(default_factory=list)
    sites: WeakKeyDictionary[Any, list[PendingSite | PendingCall]] = field(
        default_factory=WeakKeyDictionary
    )
    unnamed_schedule: Any = None
    combined: Sequence[Any] = ()
    combo: deque[Sequence[Any]] = field(default_factory=deque)
    outer_graph: OuterGraph | None = None
    region: Region | None = None


class _PerThread(threading.local):
    def __init__(self) -> None:
        self.compiles: OrderedDict[str, _CompileState] = OrderedDict()


class Compiles(EarlierStages):
    """The compiles under way, and the graphs of earlier stages that later ones need.

    Attributes:
        alone: runs mechanisms, each of which may fail alone.
    """

    def __init__(self, alone: Alone = unguarded) -> None:
        """Start with nothing known.

        Args:
            alone: runs mechanisms, each of which may fail alone.
        """
        super().__init__()
        self.alone = alone
        self._thread = _PerThread()
        self._halves = itertools.count()

    @contextmanager
    def entered(self, gm: torch.fx.GraphModule) -> Iterator[InnerCompile]:
        """Have the compile of one graph in force.

        Yields:
            What is seen of it.
        """
        names = frozenset(n.name for n in gm.graph.nodes if n.op == "call_function")
        inner = InnerCompile(gm, names, fx.dependent_calls(gm.graph), time.perf_counter_ns())
        inner.fingerprint = fingerprint_of(gm.graph)
        inner.misses = inductor.cache_misses()
        state = self._current_state
        state.inner.append(inner)
        try:
            yield inner
        finally:
            state.inner.pop()

    @property
    def _current_state(self) -> _CompileState:
        """What this thread knows of the compile in force: of another it would be wrong."""
        compiles, compile_id = self._thread.compiles, process.current_compile_id() or ""
        if compile_id not in compiles:
            compiles[compile_id] = _CompileState()
            while len(compiles) > _KEPT_COMPILES:
                compiles.popitem(last=False)
        return compiles[compile_id]

    @property
    def inner(self) -> InnerCompile | None:
        """The innermost compile of this thread."""
        inner = self._current_state.inner
        return inner[-1] if inner else None

    def add_site(self, site: PendingSite | PendingCall) -> None:
        """Append a call site to the graph that code is being generated for."""
        self.sites(inductor.current_graph()).append(site)
        self._current_state.unnamed_schedule = None

    def sites(self, graph: Any) -> list[PendingSite | PendingCall]:
        """Return the call sites of a graph so far."""
        return self._current_state.sites.setdefault(graph, [])

    def keep_schedule(self, node_schedule: Any) -> None:
        """Keep a schedule whose kernel torch has not named yet (a mix-order reduction)."""
        self._current_state.unnamed_schedule = node_schedule

    def take_schedule(self) -> Any:
        """Take the kept schedule, if there is one.

        Returns:
            Inductor's list of scheduler nodes; ``None`` where none is kept.
        """
        state = self._current_state
        schedule, state.unnamed_schedule = state.unnamed_schedule, None
        return schedule

    def keep_combo(self, combined: Sequence[Any], kernels: Sequence[Sequence[Any]]) -> None:
        """Keep the nodes of each kernel that a combo was cut into, in the order of their calls.

        Args:
            combined: all nodes of the combo.
            kernels: those of each kernel.
        """
        state = self._current_state
        state.combined, state.combo = tuple(combined), deque(kernels)

    def take_combo(self, schedule: Sequence[Any]) -> Sequence[Any]:
        """Return what a kernel computes, of a schedule.

        Torch reports each kernel of a combo with the nodes of them all
        (``torch/_inductor/codegen/simd.py``, ``codegen_combo_kernel``).
        """
        state = self._current_state
        if not state.combo or tuple(schedule) != state.combined:
            return schedule
        own = state.combo.popleft()
        if not state.combo:
            state.combined = ()
        return own

    def note_bypass(self, prepared: Any) -> None:
        """Note whether torch will bypass the FX graph cache, from what it prepared as a key."""
        if self.inner is not None:
            self.inner.bypass = inductor.bypass_reason(prepared)

    @property
    def outer_graph(self) -> OuterGraph | None:
        """The graph whose regions this thread compiles by themselves."""
        return self._current_state.outer_graph

    @contextmanager
    def in_outer_graph(self, outer_graph: OuterGraph) -> Iterator[None]:
        """Have a graph in force whose regions are compiled by themselves."""
        state = self._current_state
        outer, state.outer_graph = state.outer_graph, outer_graph
        try:
            yield
        finally:
            state.outer_graph = outer

    @property
    def region(self) -> Region | None:
        """The region that this thread compiles by itself."""
        return self._current_state.region

    @contextmanager
    def in_region(self, region: Region) -> Iterator[None]:
        """Have a region in force."""
        state = self._current_state
        outer, state.region = state.region, region
        try:
            yield
        finally:
            state.region = outer

    def outer_graph_of(self, gm: torch.fx.GraphModule) -> OuterGraph:
        """Describe a graph whose regions are about to be compiled."""
        number = next(self._halves) if regional_inductor.has_flat_regions(gm) else None
        return OuterGraph(
            number,
            regional_inductor.has_tangents(gm.graph),
            self.joint_of(fingerprint_of_outer_graph(gm)),
        )
