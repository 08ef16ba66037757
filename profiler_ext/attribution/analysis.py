"""From a recording to its analysis: each stage is a pure function of the last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from profiler_ext.attribution import collectives, graph_calls, notes, step_breakdown
from profiler_ext.attribution.alignment.invocations import Aligner, Invocation, identify
from profiler_ext.attribution.alignment.observed_kernels import confirmed_kernels
from profiler_ext.attribution.alignment.replay_checks import drop_unconfirmed
from profiler_ext.attribution.alignment.verification import StreamOrder
from profiler_ext.attribution.cpu_places import CpuPlaces
from profiler_ext.attribution.enclosing import EnclosingRanges
from profiler_ext.attribution.idle.idle_time import find_idle, find_wait_places
from profiler_ext.attribution.launches.call_origins import with_call_lines, with_callers
from profiler_ext.attribution.launches.compiled import CompiledAttributor
from profiler_ext.attribution.launches.eager import EagerAttributor, forward_launches
from profiler_ext.attribution.launches.launch_table import LaunchTable, main_phases, main_places
from profiler_ext.attribution.launches.replayed import Attributed, ReplayAttributor
from profiler_ext.attribution.places import PlaceTable, modules_of_joint_graphs
from profiler_ext.attribution.trace.launches import EnqueuedLaunches, find_launches
from profiler_ext.attribution.trace.lookups import NO_ROW, Flags, masked, take
from profiler_ext.attribution.trace.nesting import Nesting, nest
from profiler_ext.attribution.trace.steps import find_steps, steps_of
from profiler_ext.kineto import classify
from profiler_ext.records import provenance, vocabulary
from profiler_ext.records.analysis import Analysis, Launches, Place, Shares, Step
from profiler_ext.records.events import Interned, Ints, flag_rows
from profiler_ext.records.recording import Recording

_KernelsOfGraphs = tuple[tuple[int, provenance.LibraryKernels], ...]
_SCOPES = (vocabulary.Scope.EAGER, vocabulary.Scope.COMPILED)


def attribute(recording: Recording) -> Analysis:
    """Attribute every launch of a recording to the model, or give a reason why not."""
    # Every device event of the trace is a launch, the shares of a launch add up to its duration,
    # and the breakdown adds up to the steps' wall time.
    events = recording.trace.events
    nesting = nest(events)
    enqueued = find_launches(events, nesting)
    steps = find_steps(events, nesting, enqueued, recording.settings.first_step_ns)
    attributed = _attribute_launches(recording, nesting, enqueued, steps)
    launches = attributed.launches
    busy = step_breakdown.busy_spans(launches)
    cpu_places = CpuPlaces(recording, nesting, enqueued)
    wait_lines = find_wait_places(
        events, nesting, enqueued, attributed.main_place, attributed.places
    )
    return Analysis(
        recording=recording,
        steps=steps,
        launches=launches,
        places=attributed.places,
        shares=attributed.shares,
        communication=collectives.find_communication(
            recording.trace, launches, busy, nesting, enqueued
        ),
        idle=find_idle(events, nesting, enqueued, cpu_places, wait_lines, busy, steps),
        breakdown=step_breakdown.break_down_steps(launches, attributed.corrected, busy, steps),
        notes=notes.notes_on(recording, launches),
        library_kernels=attributed.library_kernels,
    )


class _LaunchesOfRecording(NamedTuple):
    launches: Launches
    places: tuple[Place, ...]
    shares: Shares
    main_place: Ints
    corrected: Flags
    library_kernels: _KernelsOfGraphs


def _attribute_launches(
    recording: Recording, nesting: Nesting, enqueued: EnqueuedLaunches, steps: Sequence[Step]
) -> _LaunchesOfRecording:
    """Attribute the launches; enclosing ranges are freed before the time is shared."""
    launches, table, places, kernels = _launches_and_places(recording, nesting, enqueued, steps)
    main = main_places(table.distinct, places)
    return _LaunchesOfRecording(
        launches,
        places,
        table.shares(launches.duration_ns),
        table.spread_rows([outcome.main_place for outcome in table.distinct]),
        table.spread_rows([int(place.is_phase_corrected) for place in main]) == 1,
        kernels,
    )


class GraphCalls(NamedTuple):
    """The calls of compiled graphs, each with its graph, and what attributes them."""

    enclosing: EnclosingRanges
    order: StreamOrder
    places: PlaceTable
    invocations: Sequence[Invocation]


def identify_calls(
    recording: Recording, nesting: Nesting, enqueued: EnqueuedLaunches
) -> GraphCalls:
    """Find the graph of each call of a compiled graph, and the call sites of what it ran."""
    events = recording.trace.events
    enclosing = EnclosingRanges(
        events,
        nesting,
        {**dict(recording.settings.called_modules), **dict(recording.settings.called_parts)},
    )
    calls = graph_calls.find_calls(enclosing, enqueued)
    aligner = Aligner(recording.graphs, calls, compiles=enclosing.compiles)
    order = StreamOrder(events, enqueued)
    invocations = drop_unconfirmed(identify(calls, recording.graphs, aligner), aligner, order)
    called = [
        (recording.graphs[each.graph], each.call.context.module)
        for each in invocations
        if each.graph is not None
    ]
    places = PlaceTable(recording.graphs, recording.settings, modules_of_joint_graphs(called))
    invocations = with_callers(invocations, recording.graphs, places)
    return GraphCalls(enclosing, order, places, invocations)


def _launches_and_places(
    recording: Recording, nesting: Nesting, enqueued: EnqueuedLaunches, steps: Sequence[Step]
) -> tuple[Launches, LaunchTable, tuple[Place, ...], _KernelsOfGraphs]:
    enclosing, order, places, invocations = identify_calls(recording, nesting, enqueued)
    table, forward = _attribute_all(recording, enclosing, enqueued, order, places, invocations)
    launches = _launches(
        enclosing, enqueued, table, places.places, forward, steps_of(enqueued, steps)
    )
    return launches, table, places.places, confirmed_kernels(invocations, recording.graphs)


def _attribute_all(
    recording: Recording,
    enclosing: EnclosingRanges,
    enqueued: EnqueuedLaunches,
    order: StreamOrder,
    places: PlaceTable,
    invocations: Sequence[Invocation],
) -> tuple[LaunchTable, Ints]:
    """Attribute every launch, those in graph calls first; then eager backward to its forward."""
    table = LaunchTable(len(enqueued))
    compiled = CompiledAttributor(
        enclosing.events, enqueued, order, recording.graphs, places, table, recording.measured
    )
    eager = EagerAttributor(enclosing, enqueued, places, table, recording)
    for invocation in with_call_lines(invocations, places, eager.lines):
        compiled.attribute_launches(invocation)
    replayed = ReplayAttributor(recording, enclosing, enqueued, places, table, _attribute_capture)
    replayed.attribute_launches(table.unassigned)
    eager.attribute_launches(table.unassigned)
    duration = enclosing.events.duration_ns[enqueued.event]
    return table, forward_launches(eager.forward, enclosing.nesting, enqueued, duration)


def _attribute_capture(recording: Recording) -> Attributed:
    """Attribute what was recorded while the program captured CUDA graphs."""
    events = recording.trace.events
    nesting = nest(events)
    enqueued = find_launches(events, nesting)
    enclosing, order, places, invocations = identify_calls(recording, nesting, enqueued)
    table, _ = _attribute_all(recording, enclosing, enqueued, order, places, invocations)
    return Attributed(enqueued, table, places.places)


def _launches(
    enclosing: EnclosingRanges,
    enqueued: EnqueuedLaunches,
    table: LaunchTable,
    places: tuple[Place, ...],
    forward: Ints,
    step: Ints,
) -> Launches:
    events, rows, distinct = enclosing.events, enqueued.event, table.distinct
    main = main_places(distinct, places)
    ops = enclosing.nesting.nearest(flag_rows(events.category, classify.is_op))
    return Launches(
        event=rows,
        step=masked(step),
        name=Interned(events.name.codes[rows], events.name.strings),
        kernel=table.spread([outcome.kernel for outcome in distinct]),
        kind=table.spread([outcome.kind for outcome in distinct]),
        scope=table.spread([_SCOPES[outcome.in_graph] for outcome in distinct]),
        device=events.device[rows].filled(0),
        stream=events.stream[rows],
        start_ns=events.start_ns[rows],
        duration_ns=events.duration_ns[rows],
        phase=table.spread(main_phases(distinct, places)),
        graph=masked(table.spread_rows([outcome.graph for outcome in distinct])),
        call_site=masked(table.spread_rows([outcome.call_site for outcome in distinct])),
        op_event=masked(take(ops, enqueued.cpu, NO_ROW)),
        forward=masked(forward),
        correlation=events.correlation[rows],
        external_id=events.external_id[rows],
        level=table.spread([place.level for place in main]),
        evidence=table.spread([outcome.evidence for outcome in distinct]),
        mechanism=table.spread([place.mechanism or "" for place in main]),
        gap=table.spread([place.gap or "" for place in main]),
        share_evidence=table.spread([outcome.share_evidence for outcome in distinct]),
    )
