"""Attributes launches outside calls of compiled graphs: op, phase, line and evidence."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from profiler_ext.attribution.enclosing import EnclosingRanges
from profiler_ext.attribution.launches import compiled, eager_phases, launch_table
from profiler_ext.attribution.launches.eager_lines import EagerLine, EagerLines
from profiler_ext.attribution.phases import runs_update
from profiler_ext.attribution.places import (
    PlaceTable,
    SourceRoots,
    eager_forward_evidence,
    gap_place,
)
from profiler_ext.attribution.trace.launches import EnqueuedLaunches
from profiler_ext.attribution.trace.lookups import NO_ROW, Flags, Rows, take
from profiler_ext.attribution.trace.nesting import Nesting
from profiler_ext.kineto import classify, names
from profiler_ext.records import analysis, vocabulary
from profiler_ext.records.events import Events, Ints, first_rows, flag_rows, numbered, ranks
from profiler_ext.records.evidence import EagerEvidence
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.lineage import ModuleFrame
from profiler_ext.records.recording import Recording

# What launched these is known but for an op: a line may have launched them
REASONS_WITH_LINE = (GapReason.NO_LAUNCHING_OP, GapReason.OWN_CUDA_GRAPH)


def launches_on_unrecorded_threads(recording: Recording, enqueued: EnqueuedLaunches) -> Flags:
    """Return for each launch whether its thread has no operator, as not all were recorded."""
    if all(gap.reason is not GapReason.THREAD_NOT_RECORDED for gap in recording.gaps):
        return np.zeros(len(enqueued), dtype=np.bool_)
    events = recording.trace.events
    recorded = events.thread[flag_rows(events.category, classify.is_op)]
    thread = take(events.thread.astype(np.int64), enqueued.call, NO_ROW)
    is_unrecorded: Flags = (enqueued.call != NO_ROW) & ~np.isin(thread, recorded)
    return is_unrecorded


def missing_op_reason(
    events: Events, enqueued: EnqueuedLaunches, launch: int, is_unrecorded: bool
) -> GapReason:
    """Return why no operator launched it."""
    # The Python wrapper gives each launch of a generated kernel an event of its name; a CUDA graph
    # that the program replays has one call for all; only a C++ wrapper has none, which outside
    # every graph call is AOTInductor's.
    row, call, cpu = (
        int(column[launch]) for column in (enqueued.event, enqueued.call, enqueued.cpu)
    )
    if call == NO_ROW:
        is_linked = events.correlation[row] is not np.ma.masked
        return GapReason.NO_LAUNCH_CALL if is_linked else GapReason.NO_CORRELATION_ID
    if is_unrecorded:
        return GapReason.THREAD_NOT_RECORDED
    if names.is_graph_launch(events.name[call]):
        return GapReason.OWN_CUDA_GRAPH
    name = events.name[row]
    launched_by_wrapper = cpu != NO_ROW and events.name[cpu] == name
    if classify.is_generated_kernel(name) and not launched_by_wrapper:
        return GapReason.AOT_INDUCTOR
    return GapReason.NO_LAUNCHING_OP


def forward_launches(
    forward: Mapping[int, int], nesting: Nesting, enqueued: EnqueuedLaunches, duration_ns: Ints
) -> Ints:
    """Return for each launch the longest launch of the forward op that it differentiates."""
    # On the CPU an op's event is a launch itself, and what autograd numbers may lie within.
    is_forward = np.zeros(len(nesting.parent), dtype=np.bool_)
    is_forward[list(forward.values())] = True
    op = take(nesting.nearest(is_forward), enqueued.cpu, NO_ROW)
    shortest_first = np.argsort(duration_ns, kind="stable")
    # Of several the last stays: the longest launch of an op. Behind the events stands ``NO_ROW``.
    longest, launch_at = (
        np.full(len(nesting.parent) + 1, NO_ROW, dtype=np.int32) for _ in range(2)
    )
    longest[op[shortest_first]] = shortest_first
    launch_at[enqueued.event] = np.arange(len(op))
    is_launch = np.zeros(len(nesting.parent), dtype=np.bool_)
    is_launch[enqueued.event] = True
    around = nesting.nearest(is_launch)
    rows = np.array([*forward.values()], dtype=np.int64)
    longest_own, outer = longest[rows], launch_at[around[rows]]
    column = np.full(len(op), NO_ROW, dtype=np.int64)
    column[[*forward]] = np.where(longest_own == NO_ROW, outer, longest_own)
    return column


class _TraceFacts(NamedTuple):
    """What the trace alone shows of a launch; ``gap`` where it needs no line."""

    aten_op: str | None
    phase: vocabulary.Phase
    forward_op: str | None = None
    module: str | None = None
    gap: GapReason | None = None


class EagerAttributor:
    """Attributes launches outside compiled graphs; ``lines`` are those that ran."""

    def __init__(
        self,
        enclosing: EnclosingRanges,
        enqueued: EnqueuedLaunches,
        places: PlaceTable,
        table: launch_table.LaunchTable,
        recording: Recording,
    ) -> None:
        events, nesting = enclosing.events, enclosing.nesting
        self._enclosing, self._enqueued = enclosing, enqueued
        self._places, self._table = places, table
        dispatched = flag_rows(events.name, classify.is_dispatched_op) & enclosing.is_op
        self._op = nesting.outermost(dispatched, within=enclosing.is_marker)
        self._forward_ops = eager_phases.ForwardOps(enclosing, recording.trace, self._op)
        self._links = self._forward_ops.links
        self.lines = EagerLines(recording, enclosing, enqueued, self._links)
        self._roots = SourceRoots(recording.settings)
        self._forward: dict[int, int] = {}
        self._known: dict[Hashable, tuple[int, EagerLine]] = {}
        updating = [str(graph.compile_id) for graph in recording.graphs if runs_update(graph)]
        by_op = enqueued.op_evidence
        self._phases = eager_phases.EagerPhases(
            enclosing, self._forward_ops, self._op, updating, by_op
        )
        self._is_trial = enclosing.is_trial(enqueued.cpu)
        self._is_unrecorded = launches_on_unrecorded_threads(recording, enqueued)
        self._sharded = nesting.nearest(flag_rows(events.name, classify.is_sharding_of_module))
        self._units = sorted(set(filter(None, map(names.sharded_module, events.name.strings))))

    @property
    def forward(self) -> Mapping[int, int]:
        """The row of the forward op of each launch whose line is that op's."""
        return self._forward

    def attribute_launches(self, launches: Ints) -> None:
        """Give launches their verdicts; of those that are alike one is looked at."""
        group = ranks(self._equivalence_keys(launches))[1]
        firsts = first_rows(group)
        numbers = np.zeros(len(firsts), dtype=np.int64)
        for at in np.argsort(firsts).tolist():
            numbers[at] = self._table.number(self._outcome(int(launches[firsts[at]])))
        self._table.assign(launches, numbers[group])

    def _equivalence_keys(self, launches: Ints) -> Ints:
        """Number launches, equal where the trace shows the same."""
        # Where lines are recorded, each launch has a position of its own.
        if self.lines.are_watched:
            return launches
        enqueued, enclosing, name = self._enqueued, self._enclosing, self._enclosing.events.name
        row, cpu = enqueued.event[launches], enqueued.cpu[launches]
        codes = name.codes
        named = [take(each, cpu, NO_ROW) for each in (self._op, self._sharded)]
        return numbered(
            [
                codes[row],
                enclosing.events.category.codes[row],
                enqueued.call[launches] == NO_ROW,
                np.ma.getmaskarray(enclosing.events.correlation)[row],
                self._is_unrecorded[launches],
                *(take(codes, each, NO_ROW) for each in named),
                take(codes, cpu, NO_ROW),
                *self._phases.equivalence_columns(cpu, enqueued.call[launches]),
                self._codes_of_forward(take(enclosing.engine, cpu, NO_ROW)),
                self._codes_of_trials(launches),
            ]
        )

    def _codes_of_forward(self, engine: Rows) -> Ints:
        rows, of_row = ranks(engine)
        known: dict[str | None, int] = {}
        facts = (None if at == NO_ROW else self._forward_ops.of_engine(at) for at in rows.tolist())
        codes = [known.setdefault(each, len(known)) for each in facts]
        return np.array(codes, dtype=np.int64)[of_row]

    def _codes_of_trials(self, launches: Ints) -> Ints:
        codes = np.zeros(len(launches), dtype=np.int64)
        for at in np.flatnonzero(self._is_trial[launches]).tolist():
            work = self._enclosing.compile_work(int(self._enqueued.cpu[launches[at]]))
            codes[at] = 1 + (work is GapReason.AUTOTUNING)
        return codes

    def _outcome(self, launch: int) -> launch_table.LaunchAttribution:
        cpu = int(self._enqueued.cpu[launch])
        facts, line, evidence = self._facts_of(launch, cpu)
        row = int(self._enqueued.event[launch])
        name, category = self._enclosing.events.name[row], self._enclosing.events.category[row]
        kind = compiled.kind_by_name(name, category, is_glue=True)
        kernel = names.kernel_name(name) if classify.is_generated_kernel(name) else ""
        # A line is compared by the identity of its parts, as stacks are long; it is kept so that no
        # id is reused.
        parts = (id(line.stack), id(line.module), id(line.caller))
        key = (facts, parts, line.evidence, line.gap, line.linked_by)
        if key not in self._known:
            self._known[key] = self._places.add(self._place(facts, line)), line
        place = self._known[key][0]
        return launch_table.LaunchAttribution(kind, (place,), kernel=kernel, evidence=evidence)

    def _facts_of(self, launch: int, cpu: int) -> tuple[_TraceFacts, EagerLine, str]:
        line = self.lines.of_launch(launch)
        # Record which op a launch differentiates; what is recomputed differentiates none.
        is_linked = line.evidence is EagerEvidence.RAN_FORWARD and line.linked_by is None
        if is_linked and cpu != NO_ROW:
            row = self._links.forward_of(int(self._enclosing.engine[cpu]))
            if row is not None:
                self._forward[launch] = row
        if line.gap is GapReason.OUT_OF_ORDER:
            return _TraceFacts(None, vocabulary.Phase.OTHER, gap=line.gap), line, ""
        call = int(self._enqueued.call[launch])
        phase, forward_op, evidence = self._phases.of(cpu, call, line.in_module)
        phase = line.phase or phase
        if cpu == NO_ROW:
            return self._without_op(launch, phase, line, None), line, ""
        op = self._enclosing.events.name[int(self._op[cpu])] if self._op[cpu] != NO_ROW else None
        if self._is_trial[launch]:
            return _TraceFacts(op, phase, gap=self._enclosing.compile_work(cpu)), line, ""
        forward_op = None if line.linked_by else forward_op
        if op is None:
            facts = evidence if forward_op else ""
            return self._without_op(launch, phase, line, forward_op), line, facts
        return _TraceFacts(op, phase, forward_op, self._module(cpu)), line, evidence

    def _place(self, facts: _TraceFacts, line: EagerLine) -> analysis.Place:
        if facts.gap is not None:
            return gap_place(facts.gap, facts.phase, op=facts.aten_op)
        op, phase, forward_op = facts.aten_op, facts.phase, facts.forward_op
        place = analysis.Place(
            aten_op=op,
            phase=phase,
            forward_node=forward_op,
            forward_evidence=line.linked_by or eager_forward_evidence(op or "", forward_op, phase),
            module=facts.module,
        )
        return self._at_line(replace(place, level=vocabulary.Level.OP) if op else place, line)

    def _without_op(
        self, launch: int, phase: vocabulary.Phase, line: EagerLine, forward_op: str | None
    ) -> _TraceFacts:
        """Attribute what no operator launched: a line may have, as it does a kernel."""
        is_unrecorded = bool(self._is_unrecorded[launch])
        reason = missing_op_reason(self._enclosing.events, self._enqueued, launch, is_unrecorded)
        if reason not in REASONS_WITH_LINE or not line.stack:
            return _TraceFacts(None, phase, gap=reason)
        return _TraceFacts(None, phase, forward_op)

    def _at_line(self, place: analysis.Place, line: EagerLine) -> analysis.Place:
        """Return a place with its line and module, or with the reason why there is no line."""
        own = line.module
        if own is not None and place.module is not None:
            own = self._unit_of(place.module, own)
        place = replace(
            place,
            module=own.path if own else place.module,
            module_class=(own.class_name or None) if own else None,
            gap=line.gap,
        )
        place = self._roots.with_line(place, line.stack)
        if place.line is None:
            return replace(place, gap=GapReason.NO_SOURCE_LINE) if line.stack else place
        return replace(
            place,
            caller_file=line.caller.file if line.caller else None,
            caller_line=line.caller.line if line.caller else None,
            stack=line.stack,
            level=vocabulary.Level.LINE,
            evidence=line.evidence,
        )

    def _unit_of(self, unit: str, own: ModuleFrame) -> ModuleFrame:
        """Return the module that FSDP works for, which is not the line's where it prefetches."""
        # FSDP's paths begin at its root, the lines' at the model: ``Model 2.layers.1``.
        within = f".{own.path}."
        if f".{unit}." in within:
            return own
        roots = [within.partition(f".{each}.")[0] for each in self._units if f".{each}." in within]
        root = min(roots, key=len, default=None)
        return own if root is None else ModuleFrame(f"{root}.{unit}".strip("."), "")

    def _module(self, cpu: int) -> str | None:
        """Return the module whose parameters FSDP gathers or reduces, if it does."""
        row = int(self._sharded[cpu])
        return None if row == NO_ROW else names.sharded_module(self._enclosing.events.name[row])
