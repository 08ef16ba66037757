"""What the program does while it captures CUDA graphs of its own, recorded for their replays.

A replay shows no operators. So the capture is recorded as a step is: its launch calls run nothing,
but each becomes a node, and the replay runs the nodes. CUPTI stays attached after it, as after any
profile. Captures of one ``make_graphed_callables`` are one recording, as to begin one takes 60 ms;
a backward that is captured apart finds its forward by the last node that each capture marks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from threading import get_ident
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.isolation.hook_protocols import Ends, Ranges
from profiler_ext.kineto.flow_events import cut
from profiler_ext.kineto.names import (
    CudaGraphMark,
    cuda_graph_mark,
    is_clock_mark,
    marked_cuda_graph,
    node_mark,
)
from profiler_ext.kineto.recording import packed_capture
from profiler_ext.records.events import flag_rows
from profiler_ext.records.recording import (
    CapturedGraph,
    CaptureRecording,
    Recording,
    captured_graph,
)
from profiler_ext.torch_compat import points, process
from profiler_ext.torch_compat.autograd import last_sequence_nr
from profiler_ext.torch_compat.captured_nodes import CapturedNodes, nodes_being_captured
from profiler_ext.torch_compat.patches import installed
from profiler_ext.torch_compat.profilers import USE

HOOK = "CUDA graphs"
_MARGIN_NS = 100_000
_NO_CORRELATION = -1
_ENDS = (CudaGraphMark.BEGINS, CudaGraphMark.ENDS)
LEARN_VARIABLE = "PROFILER_EXT_LEARN"
"""At 0 in the environment nothing is profiled before a recording, at 1 always."""


class CaptureProfile(Protocol):
    """Records the program while it captures a CUDA graph."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End; then what was recorded is there."""

    @property
    def recording(self) -> Recording | None:
        """What was recorded, if anything was."""


class Recorder(Protocol):
    """A profiler of this package."""

    @property
    def is_recording(self) -> bool:
        """Whether it records now."""


@dataclass(eq=False)
class _Capture:
    """What is known of one CUDA graph."""

    number: int
    nodes: CapturedNodes | None = None
    packed: CaptureRecording | None = None


@dataclass(eq=False)
class _Recorded:
    """A recording in progress, and the graphs that are captured in it."""

    profile: CaptureProfile | None  # ``None`` where the program's steps are recorded meanwhile
    thread: int
    depth: int = 0
    captures: list[_Capture] = field(default_factory=list)


class CapturedGraphs:
    """Records the captures of CUDA graphs, and keeps what they show as long as the graphs live."""

    def __init__(self, guard: Guard, new_profile: Callable[[], CaptureProfile]) -> None:
        self.is_wanted = False
        self._recorders: tuple[Recorder, ...] = ()
        self._guard, self._new_profile = guard, new_profile
        self._numbers = count()
        self._known: WeakKeyDictionary[Any, _Capture] = WeakKeyDictionary()
        self._recorded: _Recorded | None = None
        self._within_steps: list[_Capture] = []
        self._hooks = ExitStack()

    def install(self) -> None:
        """Watch captures from here on, if this torch supports it."""
        hooks = (
            (points.CAPTURE_BEGIN, self._begin),
            (points.CAPTURE_END, self._end),
            (points.GRAPHED_CALLABLES, self.together),
            # From here on, as a program may keep the method: ``replay = graph.replay``.
            (points.REPLAY, Ranges(self._open_replay)),
        )
        if process.can_record() and all(point.problem() is None for point, _ in hooks):
            self._hooks.enter_context(installed(hooks, self._guard))

    def remove(self) -> None:
        """Stop watching, and forget what was captured."""
        self._hooks.close()
        self._known.clear()

    def together(self, _: Observed) -> Observation:
        """Make the captures in a call one recording: to begin one takes 60 ms, on an H100."""
        is_open = self._open()
        try:
            yield
        finally:
            if is_open:
                self._close()

    def number(self, graph: Any) -> int | None:
        """Return the number of a CUDA graph whose capture was recorded."""
        known = self._known.get(graph)
        return None if known is None or known.nodes is None else known.number

    def watch_replays(self, recorder: Recorder) -> None:
        """Mark replays while a profiler records."""
        self._recorders += (recorder,)

    def leave_replays(self, recorder: Recorder) -> None:
        """Mark them no longer for its sake."""
        self._recorders = tuple(each for each in self._recorders if each is not recorder)

    def _open_replay(self, graph: Any) -> Ends | None:
        """Open the mark of a CUDA graph's replay; kept short, as it runs at every replay."""
        if not self._recorders or not any(each.is_recording for each in self._recorders):
            return None
        number = self.number(graph)
        if number is None:
            return None
        event = process.recording(cuda_graph_mark(number, CudaGraphMark.REPLAYS))
        event.__enter__()
        ends: Ends = event.__exit__
        return ends

    def replayed_in(
        self, names: Iterable[str]
    ) -> tuple[tuple[CapturedGraph, ...], tuple[CaptureRecording, ...]]:
        """Return the graphs with a mark among a recording's names, and their captures."""
        numbers = {marked_cuda_graph(name, CudaGraphMark.REPLAYS) for name in names}
        captures: dict[CaptureRecording, int] = {}
        graphs = []
        for each in sorted(self._known.values(), key=lambda capture: capture.number):
            if each.number in numbers and each.packed is not None and each.nodes is not None:
                capture = captures.setdefault(each.packed, len(captures))
                graphs.append(captured_graph(each.number, capture, *each.nodes))
        return tuple(graphs), tuple(captures)

    def _begin(self, call: Observed) -> Observation:
        graph = call["self"]
        self._known.pop(graph, None)
        is_open = not process.in_graph_trees() and self._open()
        has_begun = False
        try:
            yield
            has_begun = is_open
        finally:
            if is_open and not has_begun:
                self._close()
        if has_begun and self._recorded is not None:
            capture = self._known[graph] = _Capture(next(self._numbers))
            self._recorded.captures.append(capture)
            self._mark(capture, CudaGraphMark.BEGINS)

    def _end(self, call: Observed) -> Observation:
        capture = self._known.get(call["self"])
        is_own = capture is not None and capture.packed is None and self._recorded is not None
        try:
            if is_own and capture is not None:
                capture.nodes = nodes_being_captured()
                self._guard.run(HOOK, _mark_last_node)
                self._mark(capture, CudaGraphMark.ENDS)
            yield
        finally:
            if is_own:
                self._close()

    @staticmethod
    def _mark(capture: _Capture, what: CudaGraphMark) -> None:
        with process.recording(cuda_graph_mark(capture.number, what)):
            pass

    def _open(self) -> bool:
        """Begin a recording, or go on with the one in progress; return whether there is one."""
        recorded = self._recorded
        if recorded is None:
            recorded = self._recorded = self._begun()
        if recorded is None or recorded.thread != get_ident():
            return False
        recorded.depth += 1
        return True

    def _begun(self) -> _Recorded | None:
        if USE.is_used_by_us and process.profiler_is_on():
            return _Recorded(None, get_ident())
        wanted = self.is_wanted and os.environ.get(LEARN_VARIABLE) != "0"
        if not wanted or USE.is_in_use:
            return None
        profile = self._new_profile()
        profile.start()
        return _Recorded(profile, get_ident())

    def _close(self) -> None:
        """End the recording, once everything that it was begun for has ended."""
        recorded = self._recorded
        if recorded is None:
            return
        recorded.depth -= 1
        if recorded.depth:
            return
        self._recorded = None
        if recorded.profile is None:
            self._within_steps += recorded.captures
            return
        recorded.profile.stop()
        if recorded.profile.recording is not None:
            _pack(recorded.captures, recorded.profile.recording)

    def keep(self, recording: Recording) -> None:
        """Keep what a recording of the program's steps shows of the captures in it."""
        captures, self._within_steps = self._within_steps, []
        if not captures:
            return
        events = recording.trace.events
        marks = [cuda_graph_mark(each.number, what) for each in captures for what in _ENDS]
        rows = np.flatnonzero(events.name.where(*marks))
        if len(rows):
            # Calls are timed by another clock than marks, so one at an end may lie just outside.
            begin_ns = int(events.start_ns[rows].min()) - _MARGIN_NS
            end_ns = int(events.end_of(rows).max()) + _MARGIN_NS
            during = (events.start_ns <= end_ns) & (events.end_ns >= begin_ns)
            launched = events.correlation[during].compressed()
            during |= np.isin(events.correlation.filled(_NO_CORRELATION), launched)
            during |= flag_rows(events.name, is_clock_mark)  # without them no line is known
            trace = cut(recording.trace, during, begin_ns, end_ns)
            _pack(captures, replace(recording, trace=trace, gaps=()))


def _mark_last_node() -> None:
    """Mark the node that autograd made last: a backward of it may be captured in another graph."""
    last = last_sequence_nr()
    if last >= 0:
        with process.recording(node_mark(last)):
            pass


def _pack(captures: Sequence[_Capture], recording: Recording) -> None:
    if captures:
        packed = packed_capture(replace(recording, graphs=(), compiles=(), generated=()))
        for capture in captures:
            capture.packed = packed
