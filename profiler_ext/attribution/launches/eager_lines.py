"""The source line of eager launches: the line that ran, or for a backward its forward's.

What autograd's engine runs belongs to the forward op with the node's sequence number, unless Python
runs within the node: a backward that the program wrote, a hook, a recomputed forward.

Source: ``torch/csrc/autograd/engine.cpp``, ``CompareNodeTaskTime``: the largest sequence number
goes first, and that of ``AccumulateGrad`` is the largest: it runs right after the node that gives
the gradient, in the same thread.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace

import numpy as np

from profiler_ext.attribution import positions
from profiler_ext.attribution.enclosing import EnclosingRanges
from profiler_ext.attribution.trace import forward_links, launches
from profiler_ext.attribution.trace.lookups import NO_ROW, Flags
from profiler_ext.kineto import classify, names
from profiler_ext.records.events import Ints
from profiler_ext.records.evidence import EagerEvidence, ForwardEvidence
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.lineage import Frame, ModuleFrame
from profiler_ext.records.provenance import Gap
from profiler_ext.records.recording import PythonLines, Recording
from profiler_ext.records.vocabulary import Phase

# Why a recording has no lines at all
NO_LINES_REASONS = frozenset(
    {
        GapReason.LINES_OFF,
        GapReason.LINES_NEED_COLUMNS,
        GapReason.LINES_NEED_PYTHON_312,
        GapReason.LINES_TAKEN,
        GapReason.LINES_FAILED,
    }
)


@dataclass(frozen=True, slots=True)
class EagerLine:
    """The line that launched something."""

    # The frames of the program, outermost first; empty where there is a gap
    stack: tuple[Frame, ...] = ()
    module: ModuleFrame | None = None
    evidence: EagerEvidence | None = None  # the rule
    gap: GapReason | None = None  # why there is none
    phase: Phase | None = None  # the phase, where it differs from the trace's
    linked_by: ForwardEvidence | None = None  # the rule of its forward op
    # The frame of the forward call whose backward the program wrote itself
    caller: Frame | None = None
    in_module: bool = False  # it was launched while a module was called, by the recorded lines


def missing_lines_reason(gaps: tuple[Gap, ...]) -> GapReason | None:
    """Return why a recording has no lines at all, by one of its gaps."""
    return next((GapReason(gap.reason) for gap in gaps if gap.reason in NO_LINES_REASONS), None)


class EngineOrder:
    """The order in which the engine evaluated nodes."""

    def __init__(self, enclosing: EnclosingRanges) -> None:
        events, parent = enclosing.events, enclosing.nesting.parent
        rows: Ints = np.flatnonzero(enclosing.engine == np.arange(len(events), dtype=np.int32))
        rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
        self._events = events
        self._node_before: dict[int, int] = {}
        self._starts: dict[int, list[int]] = {}
        self._ends: dict[int, list[int]] = {}
        last: dict[tuple[int, int], int] = {}
        for row in rows.tolist():
            around, thread = int(parent[row]), int(events.thread[row])
            outer = NO_ROW if around == NO_ROW else int(enclosing.engine[around])
            self._starts.setdefault(thread, []).append(int(events.start_ns[row]))
            self._ends.setdefault(thread, []).append(events.end_at(row))
            if not classify.is_gradient_accumulation(events.name[row]):
                last[thread, outer] = row
            elif (thread, outer) in last:
                self._node_before[row] = last[thread, outer]

    def node_before(self, accumulation: int) -> int | None:
        """Return the node that the same thread evaluated before it accumulates a gradient."""
        return self._node_before.get(accumulation)

    def last_end_ns(self, row: int) -> int | None:
        """Return when the thread of a row was last done with a node before it."""
        ends = self._ends.get(int(self._events.thread[row]), [])
        at = bisect_left(ends, int(self._events.start_ns[row]))
        return ends[at - 1] if at else None

    def next_start_ns(self, row: int) -> int | None:
        """Return when the thread of a row next began with a node after it."""
        starts = self._starts.get(int(self._events.thread[row]), [])
        at = bisect_left(starts, self._events.end_at(row))
        return starts[at] if at < len(starts) else None


def max_call_overhang_ns(enclosing: EnclosingRanges, enqueued: launches.EnqueuedLaunches) -> int:
    """Return how far a runtime call juts out of the op that made it: its clock is another."""
    events = enclosing.events
    both = (enqueued.cpu != NO_ROW) & (enqueued.call != NO_ROW)
    op, call = enqueued.cpu[both], enqueued.call[both]
    is_op: Flags = enclosing.is_op[op]
    op, call = op[is_op], call[is_op]
    early = events.start_ns[op] - events.start_ns[call]
    late = events.end_of(call) - events.end_of(op)
    return int(max(early.max(initial=0), late.max(initial=0), 0))


class EagerLines:
    """The line of each eager launch of a recording."""

    def __init__(
        self,
        recording: Recording,
        enclosing: EnclosingRanges,
        enqueued: launches.EnqueuedLaunches,
        links: forward_links.ForwardLinks,
    ) -> None:
        self._events, self._enclosing, self._links = enclosing.events, enclosing, links
        self._start_ns = self._events.start_ns
        self._missing_reason = missing_lines_reason(recording.gaps)
        self._threads = [each.tid for each in self._events.threads]
        self._enqueued = enqueued
        self._of_row: dict[int, EagerLine] = {}
        self._positions: positions.PositionsOfThreads | None = None
        if recording.python is not None:
            self._load_lines(recording.python)

    def _load_lines(self, lines: PythonLines) -> None:
        clock = positions.watch_clock(self._events, lines.clock)
        if clock is None:
            self._missing_reason = GapReason.LINES_FAILED
            return
        self._stacks = positions.Stacks(lines)
        self._positions = positions.PositionsOfThreads(lines, clock)
        self._end_ns = int(clock.on_trace(np.array([lines.end_ns], dtype=np.int64))[0])
        self._overhang_ns = max_call_overhang_ns(self._enclosing, self._enqueued)
        self._is_out_of_order = launches.out_of_order(self._events, self._enqueued)
        self._order = EngineOrder(self._enclosing)
        # The system's ids of the threads that launch: only they can have called a backward.
        events = self._enclosing.events
        known = np.unique(events.thread[np.flatnonzero(self._enclosing.is_op)]).tolist()
        ids = (events.threads[each].tid for each in known)
        self._callers = frozenset(tid for tid in ids if isinstance(tid, int))

    @property
    def are_watched(self) -> bool:
        """Tell whether a recording has lines that can be aligned with its trace."""
        return self._positions is not None

    def of_launch(self, launch: int) -> EagerLine:
        """Return the line of a launch."""
        cpu, call = int(self._enqueued.cpu[launch]), int(self._enqueued.call[launch])
        row = cpu if cpu != NO_ROW else call
        if self._positions is None or row == NO_ROW:
            return EagerLine(gap=self._missing_reason)
        if self._is_out_of_order[launch]:
            return EagerLine(gap=GapReason.OUT_OF_ORDER)
        try:
            return self._line(row, self._position(cpu, call))
        except positions.AmbiguousPositionError as error:
            within = self._stacks.are_in_module(error.positions)
            return EagerLine(gap=GapReason.LINE_BORDER, in_module=within)

    def _position(self, cpu: int, call: int) -> int:
        """Return the position of an op, unless Python runs within it: then that of the call."""
        assert self._positions is not None
        is_op = cpu != NO_ROW and bool(self._enclosing.is_op[cpu])
        if call == NO_ROW or (is_op and self._holds_no_python(cpu)):
            return self._during(cpu)
        return self._during(call, self._overhang_ns)

    def _holds_no_python(self, row: int) -> bool:
        assert self._positions is not None
        start, end = int(self._start_ns[row]), self._events.end_at(row)
        error = self._positions.error_ns
        return end - start <= 2 * error or self._positions.is_still(
            self._thread(row), start + error, end - error
        )

    def _during(self, row: int, overhang_ns: int = 0) -> int:
        assert self._positions is not None
        start, end = int(self._start_ns[row]), self._events.end_at(row)
        return self._positions.during(self._thread(row), start, end, overhang_ns)

    def _thread(self, row: int) -> int:
        thread = self._threads[int(self._events.thread[row])]
        return thread if isinstance(thread, int) else NO_ROW

    def _line(self, row: int, position: int) -> EagerLine:
        engine = int(self._enclosing.engine[row])
        if engine == NO_ROW:
            is_nowhere = (
                position == positions.NO_POSITION and self._events.start_ns[row] <= self._end_ns
            )
            own = self._stacks.state(position)
            ran = replace(self._line_that_ran(own, row), in_module=own.in_module)
            return self._of_callback(row) if is_nowhere else ran
        above = self._stacks.depth(self._during(engine))
        state = self._stacks.state(position, above)
        if not state.stack and state.is_line_known:
            if state.is_recompute:
                first = self._stacks.first_module(position, above)
                return self._of_checkpoint(engine, first, state.module)
            if names.evaluated_function(self._events.name[engine]) == names.ACCUMULATE_GRAD:
                if not self._is_of_node(row, engine):
                    return self._backward_caller(int(self._events.start_ns[engine]), engine)
                before = self._order.node_before(engine)
                if before is None:
                    return EagerLine(gap=GapReason.FORWARD_NOT_RECORDED)
                # Its caller waits: below the engine in its own thread, else where the forward ran.
                assert self._positions is not None
                is_below = self._during(engine) != positions.NO_POSITION
                thread = self._thread(engine) if is_below else self._thread_of_forward(before)
                start, end = self._events.end_at(before), int(self._events.start_ns[engine])
                is_one_backward = self._positions.stays(thread, start, end)
                if not is_one_backward:
                    return EagerLine(gap=GapReason.FORWARD_NOT_RECORDED)
                last = self._of_forward(before)
                return replace(last, evidence=EagerEvidence.RAN_LAST_USE) if last.stack else last
            forward = self._of_forward(engine)
            # Source: ``torch/csrc/autograd/input_buffer.cpp``, ``accumulate``: after the node ran.
            is_direct = int(self._enclosing.nesting.parent[row]) == engine
            is_sum = is_direct and names.is_sum_of_gradients(self._events.name[row])
            return self._sum(forward) if is_sum else forward
        return self._of_python(row, engine, state)

    def _line_that_ran(self, state: positions.StackState, row: int) -> EagerLine:
        if not state.is_line_known:
            return EagerLine(module=state.module, gap=GapReason.LINE_OF_HOT_CODE)
        if not state.stack:
            is_late = int(self._events.start_ns[row]) > self._end_ns
            return EagerLine(gap=GapReason.LINES_FULL if is_late else GapReason.NO_LINE_RAN)
        return EagerLine(state.stack, state.module, EagerEvidence.RAN)

    def _of_python(self, row: int, engine: int, state: positions.StackState) -> EagerLine:
        """Return the line of Python that runs while the engine evaluates a node."""
        own = self._line_that_ran(state, row)
        forward = self._of_forward(engine)
        own = replace(own, module=own.module or forward.module)
        if state.is_recompute:
            return replace(own, phase=Phase.RECOMPUTE, linked_by=ForwardEvidence.RECOMPUTED)
        if not self._is_of_node(row, engine):
            return replace(own, linked_by=ForwardEvidence.HOOK)
        return replace(own, caller=forward.stack[-1] if forward.stack else None)

    def _of_checkpoint(
        self, engine: int, first: ModuleFrame | None, module: ModuleFrame | None
    ) -> EagerLine:
        """Return the line that called a checkpoint, of what torch itself recomputes for it."""
        called = self._checkpoint_caller(engine, first)
        is_unrecorded = self._links.forward_of(engine) is None
        gap = GapReason.FORWARD_NOT_RECORDED if is_unrecorded else GapReason.NO_LINE_RAN
        line = EagerLine(gap=gap)
        if called.stack and called.is_line_known:
            line = EagerLine(called.stack, called.module, EagerEvidence.RAN_FORWARD)
        own = module or line.module
        linked = ForwardEvidence.RECOMPUTED
        return replace(line, module=own, phase=Phase.RECOMPUTE, linked_by=linked)

    def _checkpoint_caller(self, engine: int, module: ModuleFrame | None) -> positions.StackState:
        """Return where the forward was, outside of what a checkpoint recomputes."""
        # The node is the checkpoint's own, or one of its ops: the call of the module shows how far
        # out the checkpoint was called.
        forward = self._links.forward_of(engine)
        if forward is None:
            return positions.StackState()
        try:
            position, outer = self._during(forward), int(self._enclosing.engine[forward])
            above = 0 if outer == NO_ROW else self._stacks.depth(self._during(outer))
        except positions.AmbiguousPositionError:
            return positions.StackState()
        if names.evaluated_function(self._events.name[engine]) == names.CHECKPOINT_FUNCTION:
            return self._stacks.state(position, above)
        return self._stacks.before_module(position, module, above)

    @staticmethod
    def _sum(last: EagerLine) -> EagerLine:
        """Return the line of a sum, given that of the op with the last gradient in it."""
        return replace(
            last,
            evidence=EagerEvidence.RAN_LAST_USE if last.stack else None,
            phase=Phase.GRADIENT_ACCUMULATION,
            linked_by=ForwardEvidence.GRADIENT_SUM,
        )

    def _of_forward(self, engine: int) -> EagerLine:
        """Return the line of the forward op whose backward the engine evaluates."""
        forward = self._links.forward_of(engine)
        if forward is None:
            return EagerLine(gap=GapReason.FORWARD_NOT_RECORDED)
        if forward not in self._of_row:
            self._of_row[forward] = replace(self.of_row(forward), phase=None, linked_by=None)
        forward_line = self._of_row[forward]
        return (
            replace(forward_line, evidence=EagerEvidence.RAN_FORWARD)
            if forward_line.stack
            else forward_line
        )

    def of_row(self, row: int) -> EagerLine:
        """Return the line at which an event of the CPU stands."""
        try:
            return self._line(row, self._during(row))
        except positions.AmbiguousPositionError:
            return EagerLine(gap=GapReason.LINE_BORDER)

    def _thread_of_forward(self, engine: int) -> int:
        forward = self._links.forward_of(engine)
        return self._thread(engine if forward is None else forward)

    def _of_callback(self, row: int) -> EagerLine:
        """Return the line of what a thread of the engine runs when a backward's nodes are done.

        Source: ``torch/csrc/autograd/engine.cpp``, ``GraphTask::exec_post_processing``.
        """
        last_end_ns, next_start_ns = self._order.last_end_ns(row), self._order.next_start_ns(row)
        if last_end_ns is None or (
            next_start_ns is not None and self._goes_on(last_end_ns, next_start_ns)
        ):
            return EagerLine(gap=GapReason.NO_LINE_RAN)
        return self._backward_caller(last_end_ns, row)

    def _goes_on(self, last_end_ns: int, next_start_ns: int) -> bool:
        """Tell whether the one thread that waits for a backward waits for a later node too."""
        assert self._positions is not None
        return self._positions.only_one(self._callers, last_end_ns, next_start_ns) is not None

    def _backward_caller(self, since_ns: int, row: int) -> EagerLine:
        """Return the line of the one thread that waited until a row was over: in a backward."""
        assert self._positions is not None
        end_ns = self._events.end_at(row)
        position = self._positions.only_one(self._callers, since_ns, end_ns)
        if position is None:
            return EagerLine(gap=GapReason.NO_LINE_RAN)
        waiting = self._line_that_ran(self._stacks.state(position), row)
        return replace(waiting, evidence=EagerEvidence.RAN_BACKWARD_CALL, module=None)

    def _is_of_node(self, row: int, engine: int) -> bool:
        """Tell whether a row is in the node itself, not in the engine's own work."""
        node = names.evaluated_function(self._events.name[engine])
        parent = self._enclosing.nesting.parent
        while row not in (NO_ROW, engine):
            if self._events.name[row] == node:
                return True
            row = int(parent[row])
        return False
