"""Owns the verdicts on launches outside calls of compiled graphs: op, phase, evidence."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from profiler_ext.attribution.calls.enclosing import EnclosingRanges
from profiler_ext.attribution.places.forward_evidence import eager_forward_evidence
from profiler_ext.attribution.places.lines import SourceRoots
from profiler_ext.attribution.places.phases import runs_update
from profiler_ext.attribution.places.places import PlaceTable, gap_place
from profiler_ext.attribution.trace.enqueued import EnqueuedLaunches
from profiler_ext.attribution.trace.lookups import NO_ROW, Rows, flag_rows, take
from profiler_ext.attribution.verdicts.compiled import kind_by_name
from profiler_ext.attribution.verdicts.eager_line import EagerLine
from profiler_ext.attribution.verdicts.eager_lines import EagerLines
from profiler_ext.attribution.verdicts.eager_phases import EagerPhases
from profiler_ext.attribution.verdicts.forward_ops import ForwardOps
from profiler_ext.attribution.verdicts.unheard import launches_on_unrecorded_threads
from profiler_ext.attribution.verdicts.verdicts import LaunchAttribution, LaunchTable
from profiler_ext.attribution.verdicts.without_op import REASONS_WITH_LINE, missing_op_reason
from profiler_ext.kineto import classify, names
from profiler_ext.records import (
    EagerEvidence,
    GapReason,
    Ints,
    Level,
    Phase,
    Place,
    Recording,
    first_rows,
    numbered,
    ranks,
)


class _TraceFacts(NamedTuple):
    """What the trace alone tells of a launch; ``gap`` where its line is not asked for."""

    aten_op: str | None
    phase: Phase
    forward_op: str | None = None
    module: str | None = None
    gap: GapReason | None = None


class EagerAttributor:
    """Gives launches outside compiled graphs their verdicts; ``lines`` are those that ran."""

    def __init__(
        self,
        enclosing: EnclosingRanges,
        enqueued: EnqueuedLaunches,
        places: PlaceTable,
        table: LaunchTable,
        recording: Recording,
    ) -> None:
        """Take what is known of the trace.

        Args:
            enclosing: what stands around each event on its thread.
            enqueued: its launches.
            places: where places are kept.
            table: where verdicts are given.
            recording: what was recorded: the lines that ran, and why there are none.
        """
        events, nesting = enclosing.events, enclosing.nesting
        self._enclosing, self._enqueued = enclosing, enqueued
        self._places, self._table = places, table
        dispatched = flag_rows(events.name, classify.is_dispatched_op) & enclosing.is_op
        self._op = nesting.outermost(dispatched, within=enclosing.is_marker)
        self._forward_ops = ForwardOps(enclosing, recording.trace, self._op)
        self._links = self._forward_ops.links
        self.lines = EagerLines(recording, enclosing, enqueued, self._links)
        self._roots = SourceRoots(recording.settings)
        self._forward: dict[int, int] = {}
        self._known: dict[Hashable, tuple[int, EagerLine]] = {}
        updating = [str(graph.compile_id) for graph in recording.graphs if runs_update(graph)]
        by_op = enqueued.op_evidence
        self._phases = EagerPhases(enclosing, self._forward_ops, self._op, updating, by_op)
        self._is_trial = enclosing.is_trial(enqueued.cpu)
        self._is_unrecorded = launches_on_unrecorded_threads(recording, enqueued)
        self._sharded = nesting.nearest(flag_rows(events.name, classify.is_sharding_of_module))

    @property
    def forward(self) -> Mapping[int, int]:
        """The row of the forward op of each launch whose line is that op's."""
        return self._forward

    def attribute_launches(self, launches: Ints) -> None:
        """Give launches their verdicts; of those that are alike one is looked at.

        Args:
            launches: indices of launches, in order.
        """
        group = ranks(self._equivalence_keys(launches))[1]
        firsts = first_rows(group)
        numbers = np.zeros(len(firsts), dtype=np.int64)
        for at in np.argsort(firsts).tolist():
            numbers[at] = self._table.number(self._outcome(int(launches[firsts[at]])))
        self._table.assign(launches, numbers[group])

    def _equivalence_keys(self, launches: Ints) -> Ints:
        """Return a number for each launch, the same for those of which the trace says the same.

        Where lines are watched, each launch stands at a position of its own.
        """
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

    def _outcome(self, launch: int) -> LaunchAttribution:
        cpu = int(self._enqueued.cpu[launch])
        facts, line, evidence = self._facts_of(launch, cpu)
        row = int(self._enqueued.event[launch])
        name, category = self._enclosing.events.name[row], self._enclosing.events.category[row]
        kind = kind_by_name(name, category, is_glue=True)
        kernel = names.kernel_name(name) if classify.is_generated_kernel(name) else ""
        place = self._index(facts, line)
        return LaunchAttribution(kind, (place,), kernel=kernel, evidence=evidence)

    def _facts_of(self, launch: int, cpu: int) -> tuple[_TraceFacts, EagerLine, str]:
        """Return what the trace tells of a launch, its line, and the rule that told."""
        line = self.lines.of_launch(launch)
        self._link(launch, cpu, line)
        if line.gap is GapReason.OUT_OF_ORDER:
            return _TraceFacts(None, Phase.OTHER, gap=line.gap), line, ""
        call = int(self._enqueued.call[launch])
        phase, forward_op, evidence = self._phases.of(cpu, call, line.in_module)
        phase = line.phase or phase
        if cpu == NO_ROW:
            return self._without_op(launch, phase, line, None), line, ""
        op = self._op_name(cpu) if self._op[cpu] != NO_ROW else None
        if self._is_trial[launch]:
            return _TraceFacts(op, phase, gap=self._enclosing.compile_work(cpu)), line, ""
        forward_op = None if line.linked_by else forward_op
        if op is None:
            facts = evidence if forward_op else ""
            return self._without_op(launch, phase, line, forward_op), line, facts
        return _TraceFacts(op, phase, forward_op, self._module(cpu)), line, evidence

    def _index(self, facts: _TraceFacts, line: EagerLine) -> int:
        """Return the index of a place, which is made once: most launches share theirs.

        A line is known by what its parts are, not by what they say: a stack of frames is long.
        It is kept, so that no other part can come to be the same.
        """
        parts = (id(line.stack), id(line.module), id(line.caller))
        key = (facts, parts, line.evidence, line.gap, line.linked_by)
        if key not in self._known:
            self._known[key] = self._places.add(self._place(facts, line)), line
        return self._known[key][0]

    def _place(self, facts: _TraceFacts, line: EagerLine) -> Place:
        if facts.gap is not None:
            return gap_place(facts.gap, facts.phase, op=facts.aten_op)
        op, phase, forward_op = facts.aten_op, facts.phase, facts.forward_op
        place = Place(
            aten_op=op,
            phase=phase,
            forward_node=forward_op,
            forward_evidence=line.linked_by or eager_forward_evidence(op or "", forward_op, phase),
            module=facts.module,
        )
        return self._at_line(replace(place, level=Level.OP) if op else place, line)

    def _link(self, launch: int, cpu: int, line: EagerLine) -> None:
        """Keep which op a launch differentiates; what is run again differentiates none."""
        is_linked = line.evidence is EagerEvidence.RAN_FORWARD and line.linked_by is None
        if is_linked and cpu != NO_ROW:
            row = self._links.forward_of(int(self._enclosing.engine[cpu]))
            if row is not None:
                self._forward[launch] = row

    def _without_op(
        self, launch: int, phase: Phase, line: EagerLine, forward_op: str | None
    ) -> _TraceFacts:
        """Tell of what no operator launched: a line may have, as it does a kernel."""
        is_unrecorded = bool(self._is_unrecorded[launch])
        reason = missing_op_reason(self._enclosing.events, self._enqueued, launch, is_unrecorded)
        if reason not in REASONS_WITH_LINE or not line.stack:
            return _TraceFacts(None, phase, gap=reason)
        return _TraceFacts(None, phase, forward_op)

    def _at_line(self, place: Place, line: EagerLine) -> Place:
        """Return a place with its line and module, or with the reason why there is no line."""
        own = line.module
        place = replace(
            place,
            module=own.path if own else place.module,
            module_class=own.class_name if own else None,
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
            level=Level.LINE,
            evidence=line.evidence,
        )

    def _module(self, cpu: int) -> str | None:
        """Return the module whose parameters FSDP gathers or reduces, where it does."""
        row = int(self._sharded[cpu])
        return None if row == NO_ROW else names.sharded_module(self._enclosing.events.name[row])

    def _op_name(self, cpu: int) -> str:
        return self._enclosing.events.name[int(self._op[cpu])]
