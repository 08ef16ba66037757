"""The state of the compiles in progress, by thread, until their graphs are sealed."""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch.fx

from profiler_ext.capture.graphs.call_sites import PendingCall, PendingSite
from profiler_ext.capture.graphs.regions import OuterGraph, Region, fingerprint_of_outer_graph
from profiler_ext.capture.lineage.stage import Fingerprint, JointGraph, fingerprint_of
from profiler_ext.capture.traces.dynamo_graphs import part_of
from profiler_ext.capture.traces.metadata import Replaced
from profiler_ext.isolation import hook_protocols, locks
from profiler_ext.recall.dynamo_graph import DynamoGraph
from profiler_ext.recall.provenance_lookup import Sealed
from profiler_ext.torch_compat import autotuning, fusions, fx, inductor, process

_ALWAYS_KEPT = 64
"""More than the compiles that are under way at one time, in all threads."""


@dataclass(slots=True)
class _Compile:
    """What is known of one compile."""

    dynamo: DynamoGraph | None = None
    part: DynamoGraph | None = None  # that is compiled separately now
    given: DynamoGraph | None = None  # the same as its backend gave it, before inputs are renamed
    number: int | None = None  # of the Dynamo graph in this process
    joints: list[JointGraph] = field(default_factory=list)
    parts: list[DynamoGraph | None] = field(default_factory=list)  # that each joint is traced from
    # What the partitioner saves of each joint graph, by its id, with its reason
    saved: dict[str, Mapping[str, str]] = field(default_factory=dict)
    bypass: str | None = None  # of AOTAutograd's cache: torch's reason
    halves: list[weakref.ref[Any]] = field(default_factory=list)  # the backward's, while alive

    @property
    def has_live_backward(self) -> bool:
        """Whether a backward of it may still be compiled."""
        return any(half() is not None for half in self.halves)


def _with_inputs(part: DynamoGraph | None, given: DynamoGraph | None) -> DynamoGraph | None:
    """Return a part with the inputs that it was given, where torch has renamed them since."""
    if part is None or given is None or part.parameter_inputs or part.inputs != given.inputs:
        return part
    return replace(part, parameter_inputs=given.parameter_inputs)


class _CompilesWithoutId(threading.local):
    def __init__(self) -> None:
        self.ahead_of_time: list[_Compile] = []  # the innermost last


class EarlierStages:
    """The compiles that later graphs may belong to; a reset of Dynamo reuses their ids."""

    # A backward may be compiled long after its forward, and compiled autograd may copy it any
    # number of times, so a compile is kept as long as torch keeps its backward half.

    def __init__(self) -> None:
        self._lock = locks.Lock()
        self._by_compile_id: dict[str, list[_Compile]] = {}
        self._last: list[tuple[str, _Compile]] = []
        self._numbers = itertools.count()
        self._thread_local = _CompilesWithoutId()

    def keep_dynamo(self, graph: DynamoGraph) -> None:
        """Keep the Dynamo graph of the current compile."""
        compile_id, number = process.current_compile_id(), next(self._numbers)
        if compile_id is not None:
            self._begin(compile_id, _Compile(graph, number=number))
        # The frame has an id while Dynamo traces it, but not while its backend compiles it.
        for outer in self._thread_local.ahead_of_time[-1:]:
            outer.dynamo, outer.number = graph, number

    @contextmanager
    def ahead_of_time(self) -> Iterator[None]:
        """Keep what a thread compiles ahead of time, to which torch gives no compile id."""
        compiles = self._thread_local.ahead_of_time
        compiles.append(_Compile())
        try:
            yield
        finally:
            compiles.pop()

    @property
    def dynamo(self) -> DynamoGraph | None:
        """The Dynamo graph of the current compile."""
        return None if (now := self._current_compile()) is None else now.dynamo

    def begin_part(self, describe: Callable[[DynamoGraph], DynamoGraph | None]) -> None:
        """Begin to compile a part of the Dynamo graph, or all of it."""
        if (now := self._current_compile()) is not None and now.dynamo is not None:
            now.part = _with_inputs(describe(now.dynamo), now.given)

    @contextmanager
    def in_part(self, describe: Callable[[DynamoGraph], DynamoGraph | None]) -> Iterator[None]:
        """Begin to compile a part of the Dynamo graph that its backend compiles by itself."""
        self.begin_part(describe)
        if (now := self._current_compile()) is None:
            yield
            return
        outer, now.given = now.given, now.part
        try:
            yield
        finally:
            now.given = outer

    def traced_from(self, joint: JointGraph | None = None) -> DynamoGraph | None:
        """Return the Dynamo graph, or part, that a graph of this compile was traced from.

        Args:
            joint: the joint graph that it was cut from; by default the one being compiled.
        """
        if (now := self._current_compile()) is None:
            return None
        pairs = zip(now.joints, now.parts, strict=False)
        part = next((part for known, part in pairs if known is joint), now.part)
        return part or now.dynamo

    @property
    def dynamo_number(self) -> int | None:
        """The number of that Dynamo graph in this process."""
        return None if (now := self._current_compile()) is None else now.number

    def keep_autograd_bypass(self, reason: str) -> None:
        """Keep why torch bypassed AOTAutograd's cache in the current compile."""
        if (now := self._current_or_new()) is not None:
            now.bypass = reason

    @property
    def autograd_bypass(self) -> str | None:
        """Why torch bypassed AOTAutograd's cache in the current compile."""
        reasons = (each.bypass for each in self._latest_first() if each.bypass is not None)
        return next(reasons, None)

    def keep_joint(self, joint: JointGraph) -> None:
        """Keep a joint graph until its halves are compiled."""
        if (now := self._current_or_new()) is not None:
            now.parts.append(now.part)
            now.joints.append(joint)

    def keep_saved(self, reasons: Mapping[str, str]) -> None:
        """Keep what the partitioner saves of the last joint graph, with its reason."""
        # With a memory budget it decides several times; the first time none is exceeded.
        now = self._current_compile()
        if now is not None and now.joints:
            joint = now.joints[-1].id
            now.saved[joint] = {**reasons, **now.saved.get(joint, {})}

    def saved_of(self, joint: JointGraph | None) -> Mapping[str, str] | None:
        """Return what the partitioner saves of a joint graph, if it was observed."""
        found = (each.saved.get(joint.id) for each in self._latest_first() if joint is not None)
        return next((each for each in found if each is not None), None)

    def keep_half(self, half: weakref.ref[Any]) -> None:
        """Keep the current compile as long as torch keeps this backward half."""
        if (now := self._current_or_new()) is not None:
            now.halves.append(half)

    def joint_seen_before(self, fingerprint: Fingerprint) -> JointGraph | None:
        """Return this compile's joint graph with this fingerprint, as its passes left it."""
        return next((j for j in self._joints() if j.fingerprint == fingerprint), None)

    def parent_joint_of(self, fingerprint: Fingerprint) -> JointGraph | None:
        """Return this compile's joint graph that contains a graph."""
        return next((joint for joint in self._joints() if joint.contains_graph(fingerprint)), None)

    def joint_of(self, fingerprint: Fingerprint) -> JointGraph | None:
        """Return this compile's joint graph that shares most nodes with a half."""
        # After a reset of Dynamo an older compile has the same id: the latest counts.
        best = max(self._joints(), key=lambda joint: joint.shared(fingerprint), default=None)
        return best if best is not None and best.shared(fingerprint) else None

    def _joints(self) -> Iterator[JointGraph]:
        for each in self._latest_first():
            yield from reversed(each.joints)

    def _latest_first(self) -> Iterable[_Compile]:
        if (compile_id := process.current_compile_id()) is None:
            return reversed(self._thread_local.ahead_of_time)
        return reversed(self._by_compile_id.get(compile_id, ()))

    def _current_compile(self) -> _Compile | None:
        return next(iter(self._latest_first()), None)

    def _current_or_new(self) -> _Compile | None:
        compile_id = process.current_compile_id()
        if compile_id is not None and not self._by_compile_id.get(compile_id):
            self._begin(compile_id, _Compile())
        return self._current_compile()

    def _begin(self, compile_id: str, compiled: _Compile) -> None:
        with self._lock.held():
            self._by_compile_id[compile_id] = [*self._by_compile_id.get(compile_id, ()), compiled]
            self._last.append((compile_id, compiled))
            if len(self._last) > 2 * _ALWAYS_KEPT:
                self._drop_finished()

    def _drop_finished(self) -> None:
        self._last = self._last[-_ALWAYS_KEPT:]
        kept = {id(each) for _, each in self._last}
        for compile_id, compiles in tuple(self._by_compile_id.items()):
            live = [each for each in compiles if id(each) in kept or each.has_live_backward]
            if live:
                self._by_compile_id[compile_id] = live
            else:
                del self._by_compile_id[compile_id]


_KEPT_COMPILES = 16


@dataclass(slots=True)
class InnerCompile:
    """One ``_compile_fx_inner`` call: the graph as it entered, and what its passes did."""

    gm: torch.fx.GraphModule  # changed in place by the passes
    entered: frozenset[str]  # the names of its call nodes
    order: tuple[tuple[str, str], ...]  # name and target of those that depend on an input
    started_ns: int
    replaced: dict[torch.fx.Graph, Replaced] = field(default_factory=dict)  # by post-grad passes
    fingerprint: Fingerprint = frozenset()
    misses: int = 0  # of the FX graph cache before
    bypass: str | None = None  # of the FX graph cache: torch's reason
    is_compiled: bool = False  # no cache hit
    sealed: Sealed | None = None  # ``None`` on a cache hit
    lost: frozenset[str] = frozenset()  # mechanisms that failed in the post-grad passes


@dataclass(slots=True)
class _CompileState:
    """One thread's state of one compile, its nested graphs included."""

    inner: list[InnerCompile] = field(default_factory=list)
    sites: WeakKeyDictionary[Any, list[PendingSite | PendingCall]] = field(
        default_factory=WeakKeyDictionary
    )
    refusals: WeakKeyDictionary[Any, fusions.Refusals] = field(default_factory=WeakKeyDictionary)
    scheduled: WeakKeyDictionary[Any, fusions.Schedule] = field(default_factory=WeakKeyDictionary)
    selections: WeakKeyDictionary[Any, autotuning.Selections] = field(
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
    """The compiles in progress, and the earlier graphs that later ones need."""

    def __init__(self, try_run: hook_protocols.TryRun = hook_protocols.unguarded) -> None:
        super().__init__()
        self.try_run = try_run
        self._thread = _PerThread()
        self._halves = itertools.count()

    @contextmanager
    def entered(self, gm: torch.fx.GraphModule) -> Iterator[InnerCompile]:
        """Make the compile of one graph the current one."""
        names = frozenset(n.name for n in fx.call_nodes(gm.graph))
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
        """This thread's state of the current compile."""
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

    def refusals(self) -> fusions.Refusals:
        """Return why the scheduler of the current graph has not fused nodes, so far."""
        refusals = self._current_state.refusals
        graph = inductor.current_graph()
        if graph not in refusals:
            refusals[graph] = fusions.Refusals()
        return refusals[graph]

    def selections(self, graph: Any = None) -> autotuning.Selections:
        """Return what autotuning timed and chose for a graph so far, by default the current one."""
        graph = inductor.current_graph() if graph is None else graph
        selections = self._current_state.selections
        if graph not in selections:
            selections[graph] = autotuning.Selections()
        return selections[graph]

    def keep_operations(self, scheduler: Any) -> None:
        """Keep what a scheduler will generate code for, while its graph is the current one."""
        operations = tuple(fusions.scheduled_operations(scheduler))
        schedule = fusions.Schedule(operations, self.refusals(), fusions.options_on())
        self._current_state.scheduled[inductor.current_graph()] = schedule

    def scheduled(self, graph: Any) -> fusions.Schedule | None:
        """Return the schedule of a graph whose code was generated, if it was observed."""
        return self._current_state.scheduled.get(graph)

    def keep_schedule(self, node_schedule: Any) -> None:
        """Keep the schedule of a kernel that has no name yet (a mix-order reduction)."""
        self._current_state.unnamed_schedule = node_schedule

    def take_schedule(self) -> Any:
        """Take the kept schedule, if any."""
        state = self._current_state
        schedule, state.unnamed_schedule = state.unnamed_schedule, None
        return schedule

    def keep_combo(self, combined: Sequence[Any], kernels: Sequence[Sequence[Any]]) -> None:
        """Keep the nodes of each kernel of a combo, in the order of their calls."""
        state = self._current_state
        state.combined, state.combo = tuple(combined), deque(kernels)

    def take_combo(self, schedule: Sequence[Any]) -> Sequence[Any]:
        """Return the nodes that a reported kernel computes.

        Torch reports each kernel of a combo with the nodes of all
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
        """Note whether torch bypasses the FX graph cache, from the key it prepared."""
        if self.inner is not None:
            self.inner.bypass = inductor.bypass_reason(prepared)

    @property
    def outer_graph(self) -> OuterGraph | None:
        """The graph whose regions this thread compiles separately."""
        return self._current_state.outer_graph

    @contextmanager
    def in_outer_graph(self, outer_graph: OuterGraph) -> Iterator[None]:
        """Make a graph current while its regions are compiled."""
        state = self._current_state
        outer, state.outer_graph = state.outer_graph, outer_graph
        try:
            yield
        finally:
            state.outer_graph = outer

    @property
    def region(self) -> Region | None:
        """The region that this thread compiles separately."""
        return self._current_state.region

    @contextmanager
    def in_region(self, region: Region) -> Iterator[None]:
        """Make a region current."""
        state = self._current_state
        outer, state.region = state.region, region
        try:
            yield
        finally:
            state.region = outer

    def outer_graph_of(self, gm: torch.fx.GraphModule) -> OuterGraph:
        """Describe a graph whose regions are about to be compiled."""
        number = next(self._halves) if fx.has_flat_regions(gm) else None
        return OuterGraph(
            number, fx.has_tangents(gm.graph), self.joint_of(fingerprint_of_outer_graph(gm))
        )


def begin_part(compiles: Compiles, gm: Any) -> None:
    """Note what a backend compiles now: all of Dynamo's graph, or a part of it."""
    if (describe := _description(compiles, gm)) is not None:
        compiles.begin_part(describe)


@contextmanager
def in_part(compiles: Compiles, gm: Any) -> Iterator[None]:
    """Note the same while a backend compiles it by itself."""
    describe = _description(compiles, gm)
    with nullcontext() if describe is None else compiles.in_part(describe):
        yield


def _description(compiles: Compiles, gm: Any) -> Callable[[DynamoGraph], DynamoGraph | None] | None:
    # Marked regions are parts of AOTAutograd's graph; compiled autograd copies its graph whole.
    is_region = compiles.outer_graph is not None or compiles.region is not None
    is_graph = isinstance(gm, torch.fx.GraphModule)
    is_part = is_graph and not is_region and not process.in_compiled_autograd()
    return partial(part_of, gm) if is_part else None
