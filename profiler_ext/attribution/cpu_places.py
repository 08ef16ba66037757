"""Where the CPU was over time: line and module of the thread that runs the steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from profiler_ext.attribution.launches.eager_lines import missing_lines_reason
from profiler_ext.attribution.places import SourceRoots
from profiler_ext.attribution.positions import Stacks, changes_of, watch_clock
from profiler_ext.attribution.trace.launches import EnqueuedLaunches
from profiler_ext.attribution.trace.lookups import NO_ROW
from profiler_ext.attribution.trace.nesting import Nesting
from profiler_ext.kineto import classify
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Ints, flag_rows
from profiler_ext.records.evidence import EagerEvidence
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.recording import PythonLines, Recording
from profiler_ext.records.vocabulary import Level


class CpuPlaces:
    """The places of the thread that runs the steps.

    Attributes:
        thread: its index in the trace, or ``NO_ROW``.
    """

    def __init__(self, recording: Recording, nesting: Nesting, enqueued: EnqueuedLaunches) -> None:
        self._roots = SourceRoots(recording.settings)
        self._numbers: dict[Place, int] = {}
        self._times_ns = np.empty(0, dtype=np.int64)
        events = recording.trace.events
        is_step = flag_rows(events.name, classify.is_step) & (nesting.depth != NO_ROW)
        launching = enqueued.cpu[enqueued.cpu != NO_ROW]
        rows = np.flatnonzero(is_step) if is_step.any() else launching
        self.thread = int(np.bincount(events.thread[rows]).argmax()) if len(rows) else NO_ROW
        lines, clock = recording.python, None
        if lines is not None:
            clock = watch_clock(recording.trace.events, lines.clock)
        if lines is None or clock is None:
            self._codes = np.array([self._number(Place(gap=_missing_reason(recording)))])
            return
        known = recording.trace.events.threads[self.thread].tid if self.thread != NO_ROW else NO_ROW
        times, positions = changes_of(lines, clock, known if isinstance(known, int) else NO_ROW)
        is_full = any(gap.reason == GapReason.LINES_FULL for gap in recording.gaps)
        codes = self._codes_of(
            positions, lines, GapReason.LINES_FULL if is_full else GapReason.LINES_ENDED
        )
        self._times_ns, self._codes = _without_repeats(np.maximum.accumulate(times), codes)

    @property
    def places(self) -> tuple[Place, ...]:
        """The places by their number."""
        return tuple(self._numbers)

    def at(self, times_ns: Ints) -> Ints:
        """Return the number of the place at each time."""
        return self._codes[np.searchsorted(self._times_ns, times_ns, side="right")]

    @property
    def times_ns(self) -> Ints:
        """When the thread went from one place to another, in order."""
        return self._times_ns

    @property
    def codes(self) -> Ints:
        """The number of the place before the first of these times, and from each one on."""
        return self._codes

    def _codes_of(self, positions: Ints, lines: PythonLines, after: GapReason) -> Ints:
        stacks = Stacks(lines)
        distinct, inverse = np.unique(positions, return_inverse=True)
        numbers = [self._number(self._place(stacks, each)) for each in distinct.tolist()]
        before = self._number(Place(gap=GapReason.NO_LINE_RAN))
        codes = np.array([before, *np.array(numbers)[inverse].tolist()], dtype=np.int64)
        codes[-1] = self._number(Place(gap=after))
        return codes

    def _number(self, place: Place) -> int:
        return self._numbers.setdefault(place, len(self._numbers))

    def _place(self, stacks: Stacks, position: int) -> Place:
        state = stacks.state(position)
        place = Place()
        if state.module is not None:
            path, class_name = state.module.path, state.module.class_name
            place = Place(module=path, module_class=class_name)
        if not state.is_line_known:
            return replace(place, gap=GapReason.LINE_OF_HOT_CODE)
        if not state.stack:
            return replace(place, gap=GapReason.NO_LINE_RAN)
        place = self._roots.with_line(place, state.stack)
        if place.line is None:
            return replace(place, gap=GapReason.NO_SOURCE_LINE)
        return replace(place, stack=state.stack, level=Level.LINE, evidence=EagerEvidence.RAN)


def _without_repeats(times: Ints, codes: Ints) -> tuple[Ints, Ints]:
    """Drop entries of no duration, and then repeats of the same place."""
    lasts = np.append(times[1:] != times[:-1], True)
    times, codes = times[lasts], np.append(codes[:1], codes[1:][lasts])
    changes = codes[1:] != codes[:-1]
    return times[changes], np.append(codes[:1], codes[1:][changes])


def _missing_reason(recording: Recording) -> GapReason:
    """Return why no line is known; recorded lines without a clock mark cannot be aligned."""
    if recording.python is not None:
        return GapReason.LINES_FAILED
    return missing_lines_reason(recording.gaps) or GapReason.LINES_NOT_RECORDED
