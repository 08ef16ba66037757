"""The critical path of a step, and its time without profiling or without waits.

A faster kernel makes a step faster only where the step waits for the device. Where the CPU is
behind, the device waits for the next launch, and a faster kernel only makes that wait longer. So a
launch is on the critical path if what follows it was in the queue already, up to a launch at whose
end the CPU was waiting for the device, or to the end of the trace.

The steps can be replayed with a faster CPU or with less to do: each launch runs when the CPU has
reached it and the device has finished those before, and each wait ends when the device has
finished all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from statistics import median_low
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profiler_ext.findings.full_queue import waits_for_room
from profiler_ext.kineto import classify, names
from profiler_ext.records.analysis import Analysis, Launches
from profiler_ext.records.events import Interned, Ints, flag_rows

NO_ROW = -1
_LONG_NS = 500_000  # an event is not recorded for so long
_NATIVE_NS = 50_000  # nor, for so long, anything within an op or a call of the runtime
_QUEUED_NS = 20_000  # a launch that begins this long after it was enqueued waited for others
_NONE: Ints = np.empty(0, np.int64)
Rows = npt.NDArray[np.bool_]
# Steps whose replay as they were recorded is off by more than this part are not understood
MAX_REPLAY_ERROR: Final = 0.1
_TRIES = 24
# None of ``Slowed`` says more. Of 32 steps that wait for the CPU one needs 3.6
MOST_SLOWDOWN: Final = 4.0
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """One row for each launch."""

    enqueued_ns: Ints  # when the CPU had enqueued it; its own start where the call is unknown
    call: Ints  # row of the runtime call that launched it, or ``NO_ROW``
    is_critical: Rows
    waited_ns: Ints  # idle time of its device before it
    busy_ns: Ints  # device time of it and of nothing that began earlier
    # CPU time since the launch before was enqueued, without waits for room; 0 for the first
    since_ns: Ints
    cost_ns: Ints  # the same, at most the device's wait and run
    replayed: Rows  # a CUDA graph launched it, together with others
    waits_for_room: tuple[Ints, Ints]  # begins and ends of the CPU's waits for a full queue


def find_critical_path(analysis: Analysis) -> CriticalPath:
    """Find the launches that the steps wait for."""
    launches, events = analysis.launches, analysis.recording.trace.events
    call = _calls(analysis)
    known = call != NO_ROW
    enqueued_ns = launches.start_ns.copy()
    enqueued_ns[known] = events.end_of(call[known])
    calls_waiting = np.union1d(
        np.flatnonzero(is_wait(events.name)), _calls_of_results(launches, call)
    )
    is_critical, waited_ns = np.zeros(len(launches), np.bool_), np.zeros(len(launches), np.int64)
    busy_ns = np.zeros(len(launches), np.int64)
    for device in np.unique(launches.device).tolist():
        rows = np.flatnonzero(launches.device == device)
        waited_ns[rows] = _idle_before_ns(launches.start_ns[rows], launches.duration_ns[rows])
        busy_ns[rows] = _busy(launches.start_ns[rows], launches.duration_ns[rows])
        is_critical[rows] = _is_on_critical_path(
            launches.start_ns[rows],
            launches.duration_ns[rows],
            enqueued_ns[rows],
            (events.start_ns[calls_waiting], events.end_of(calls_waiting)),
        )
    replayed = _replayed(analysis, call)
    is_copy = flag_rows(launches.name, lambda name: "Memcpy" in name)  # a copy may wait for itself
    one_by_one = np.flatnonzero(known & ~replayed & ~is_copy)
    full = united(*waits_for_room(launches, one_by_one, events, call[one_by_one]))
    order = np.argsort(enqueued_ns, kind="stable")
    since = np.zeros(len(enqueued_ns), np.int64)
    since[order[1:]] = np.diff(_without(full, enqueued_ns[order]))
    cost_ns = np.minimum(since, waited_ns + launches.duration_ns)
    return CriticalPath(
        enqueued_ns, call, is_critical, waited_ns, busy_ns, since, cost_ns, replayed, full
    )


def _calls_of_results(launches: Launches, call: Ints) -> Ints:
    """Return the calls that copy to pageable memory: the CPU is in them until the copy is done."""
    is_result = flag_rows(launches.name, lambda name: classify.pageable_copy(name) == "DtoH")
    calls: Ints = call[is_result & (call != NO_ROW)]
    return calls


def is_wait(name: Interned) -> Rows:
    """Flag events in which the CPU waits for a device, as it does where it frees its memory."""
    return flag_rows(name, classify.is_device_wait) | flag_rows(name, classify.is_free)


def _calls(analysis: Analysis) -> Ints:
    events, launches = analysis.recording.trace.events, analysis.launches
    codes = [
        code for code, text in enumerate(events.category.strings) if classify.is_runtime_call(text)
    ]
    rows = np.flatnonzero(
        np.isin(events.category.codes, codes) & ~np.ma.getmaskarray(events.correlation)
    )
    rows = rows[np.argsort(events.correlation.data[rows], kind="stable")]
    keys, wanted = events.correlation.data[rows], launches.correlation.filled(-1)
    at = np.searchsorted(keys, wanted)
    result = np.append(keys, -2)[at] == wanted
    return np.where(result, np.append(rows, NO_ROW)[at], NO_ROW)


def _idle_before_ns(start_ns: Ints, duration_ns: Ints) -> Ints:
    """Return the device's idle time before each launch; 0 for the first."""
    if not len(start_ns):
        return start_ns
    ends = np.maximum.accumulate(start_ns + duration_ns)
    waited: Ints = np.maximum(start_ns - np.append(start_ns[:1], ends[:-1]), 0)
    return waited


def _busy(start_ns: Ints, duration_ns: Ints) -> Ints:
    """Return the time of each launch in which no earlier one ran."""
    ends = np.maximum.accumulate(start_ns + duration_ns)
    covered = np.append(start_ns[:1], ends[:-1])
    busy: Ints = np.maximum(start_ns + duration_ns - np.maximum(start_ns, covered), 0)
    return busy


def _replayed(analysis: Analysis, call: Ints) -> Rows:
    name = analysis.recording.trace.events.name
    flags = np.array([names.is_graph_launch(text) for text in name.strings], np.bool_)
    replayed = np.zeros(len(call), np.bool_)
    known = call != NO_ROW
    replayed[known] = flags[name.codes[call[known]]]
    return replayed


def _is_on_critical_path(
    start_ns: Ints, duration_ns: Ints, enqueued_ns: Ints, device_waits: tuple[Ints, Ints]
) -> Rows:
    """Flag launches, each like the first one from it on that is known by itself."""
    if not len(start_ns):
        return np.zeros(0, np.bool_)
    ends = np.maximum.accumulate(start_ns + duration_ns)
    is_followed = np.append(enqueued_ns[1:] <= ends[:-1], False)
    is_awaited = is_within(ends, *device_waits)
    is_awaited[-1] |= start_ns[-1] - enqueued_ns[-1] > _QUEUED_NS
    measured_rows = np.flatnonzero(is_awaited | ~is_followed)
    return is_awaited[measured_rows[np.searchsorted(measured_rows, np.arange(len(ends)))]]


def is_within(times: Ints, starts: Ints, ends: Ints) -> Rows:
    """Flag times at which one of these spans, which may overlap, is open."""
    order = np.argsort(starts, kind="stable")
    reach = np.maximum.accumulate(np.append(np.int64(-1), ends[order]))
    return reach[np.searchsorted(starts[order], times, side="right")] >= times


def united(begin_ns: Ints, end_ns: Ints) -> tuple[Ints, Ints]:
    """Return the union of spans, begins and ends in order."""
    order = np.argsort(begin_ns, kind="stable")
    begin_ns, reach = begin_ns[order], np.maximum.accumulate(end_ns[order])
    first = np.append(True, begin_ns[1:] > reach[:-1])[: len(begin_ns)]
    last = np.append(first[1:], True)[: len(begin_ns)]
    return begin_ns[first], reach[last]


def _without(spans: tuple[Ints, Ints], times_ns: Ints) -> Ints:
    """Return times on a clock that stands still in some spans, in order, that do not overlap."""
    begin_ns, end_ns = spans
    number = np.searchsorted(begin_ns, times_ns, side="left")
    gone = np.append(0, np.cumsum(end_ns - begin_ns))[number]
    still_ns = np.maximum(np.append(0, end_ns)[number] - times_ns, 0)
    result: Ints = times_ns - gone + still_ns
    return result


@dataclass(frozen=True, slots=True)
class Waits:
    """The CPU's waits for the device, none before the last one was over."""

    start_ns: Ints  # begin of each
    end_ns: Ints
    lag_ns: Ints  # how long after the device had finished
    is_for_value: Rows  # no wait for a copy to the device, and none of a call that frees memory
    is_free: Rows  # of a call that frees memory
    last_launch: Ints  # row of the launch before it, or ``NO_ROW``


class Slowed(Enum):
    """What of the CPU's work a recording slows."""

    NOT_NATIVE = auto()  # all but long work, and what ops and calls do by themselves
    NOT_LONG = auto()
    ALL = auto()


@dataclass(frozen=True, slots=True)
class Remedied:
    """What a remedy leaves; parts for each launch of the analysis, 1 where it changes nothing."""

    cpu: Floats  # of the CPU's work since the launch before
    busy: Floats  # of the device's time
    waits: Rows | None = None  # the waits that remain, of ``Replay.waits``; ``None`` for all
    gone: Floats | float = 0.0  # of the CPU's work what goes besides, in spans of one cause each
    count: Floats | float = 1.0  # of the launches that take any time

    def joined(self, other: Remedied) -> Remedied:
        """Return both as one; of a launch that both change the smaller part remains.

        What goes besides is of other time, and adds up.
        """
        waits = other.waits if self.waits is None else self.waits
        if self.waits is not None and other.waits is not None:
            waits = self.waits & other.waits
        cpu, busy = np.minimum(self.cpu, other.cpu), np.minimum(self.busy, other.busy)
        count = np.minimum(self.count, other.count)
        return Remedied(cpu, busy, waits, self.gone + other.gone, count)


class Replay:
    """The steps of a recording on one device, to be replayed.

    Args:
        slowed: what of the CPU's work the recording slowed.

    Attributes:
        device: the device whose launches it replays.
        recorded_ns: the usual step as recorded, from one to the next on the device.
    """

    def __init__(
        self,
        analysis: Analysis,
        pace: CriticalPath,
        device: int,
        *,
        slowed: Slowed = Slowed.NOT_LONG,
    ) -> None:
        start_ns = np.minimum(pace.enqueued_ns, analysis.launches.start_ns)
        self._begin_ns = analysis.steps[0].cpu_start_ns
        is_own = (analysis.launches.device == device) & (start_ns >= self._begin_ns)
        rows, self._count = np.flatnonzero(is_own), len(is_own)
        self.device = device
        copies = _awaited_copies(analysis, pace)
        events = analysis.recording.trace.events
        start_ns[copies] = events.start_ns[pace.call[copies]]
        rows = rows[np.argsort(start_ns[rows], kind="stable")]
        self._rows, self._start_ns = rows, start_ns[rows]
        late_ns = (analysis.launches.start_ns - start_ns)[rows]
        gap_ns, delay_ns = _gaps_and_delays(late_ns, pace.waited_ns[rows], pace.replayed[rows])
        self._busy_ns, self._gap_ns, self._ahead_ns = pace.busy_ns[rows], gap_ns, delay_ns - gap_ns
        self._waits = _waits(analysis, start_ns, copies)
        full = np.stack(pace.waits_for_room)
        full = full[:, full[0] >= self._begin_ns]
        waits = np.stack([self._waits.start_ns, self._waits.end_ns])
        self._not_working = united(*np.concatenate([waits, full], axis=1))
        self._unslowed = _unslowed_spans(analysis, slowed)
        self._waited = self._number(self._start_ns)
        self._steps = np.array([(each.cpu_start_ns, each.cpu_end_ns) for each in analysis.steps]).T
        self._of_steps = np.searchsorted(self._start_ns, self._steps[1], side="right")
        through_ns = (analysis.launches.start_ns + analysis.launches.duration_ns)[rows]
        self.recorded_ns = self._usual(np.maximum.accumulate(through_ns) - self._begin_ns)

    @property
    def waits(self) -> Waits:
        """The CPU's waits for the device, in order of time."""
        return self._waits

    @property
    def unchanged(self) -> Remedied:
        """What a remedy leaves that changes nothing."""
        return Remedied(np.ones(self._count), np.ones(self._count))

    def step_ns(self, slowdown: float, remedied: Remedied | None = None) -> int:
        """Return the usual step's time on the device in a replay, with a remedy if given."""
        # The CPU is ahead by more or less, so its own steps vary more.
        work_ns, wait_work_ns, busy_ns = self._after(slowdown, remedied)
        at_launch = work_ns + self._ahead_ns
        counts = remedied.waits if remedied is not None and remedied.waits is not None else None
        waited = self._waited_ns(at_launch, wait_work_ns, busy_ns, counts)
        ready_ns, run_ns = at_launch + waited[self._waited], np.cumsum(busy_ns)
        return self._usual(np.maximum.accumulate(ready_ns - run_ns + busy_ns) + run_ns)

    def kept(self, begin_ns: Ints, end_ns: Ints, slowdown: float) -> Floats:
        """Return the part of the CPU's work before each launch that is not in some spans.

        The spans are in order and do not overlap; one number for each launch of the analysis.
        """
        bounds = self._work(np.ravel([begin_ns, end_ns], order="F"), slowdown)
        gone = np.cumsum(np.diff(bounds)[::2])
        at = np.append(0.0, np.ravel([np.append(0, gone[:-1]), gone], order="F"))
        work = self._work(self._start_ns, slowdown)
        gone_before = np.interp(work, np.append(0.0, bounds), at)
        since = np.diff(work, prepend=0.0)
        result = np.ones(self._count)
        gone_since = np.diff(gone_before, prepend=0.0)
        result[self._rows] = 1 - gone_since / np.maximum(since, np.maximum(gone_since, 1))
        return result

    def _work(self, times_ns: Ints, slowdown: float) -> Floats:
        """Return the CPU's work until each time, as long as it takes without a recording."""
        worked_ns = self._worked_ns(times_ns)
        begins, ends = (self._worked_ns(each) for each in self._unslowed)
        sums = np.append(0, np.cumsum(ends - begins))
        bounds = np.append(0, np.ravel([begins, ends], order="F"))
        known = np.append(0, np.ravel([sums[:-1], sums[1:]], order="F"))
        unslowed: Floats = np.interp(worked_ns, bounds, known)
        return (worked_ns - unslowed) / slowdown + unslowed

    def _after(self, slowdown: float, remedied: Remedied | None) -> tuple[Floats, Floats, Floats]:
        """Return the CPU's work until each launch and wait, and the launches' device time."""
        wait_work_ns = self._work(self._waits.start_ns, slowdown)
        work_ns = self._work(self._start_ns, slowdown)
        if remedied is None or not len(self._rows):
            return work_ns, wait_work_ns, (self._busy_ns + self._gap_ns).astype(np.float64)
        gone = np.minimum(1 - remedied.cpu + remedied.gone, 1)[self._rows]
        gone_ns = np.cumsum(gone * np.diff(work_ns, prepend=work_ns[:1]))
        at_waits_ns = np.interp(wait_work_ns, work_ns, gone_ns)
        gap_ns = self._gap_ns * (remedied.count * (remedied.busy > 0))[self._rows]
        busy_ns = self._busy_ns * remedied.busy[self._rows] + gap_ns
        return work_ns - gone_ns, wait_work_ns - at_waits_ns, busy_ns

    def _usual(self, through_ns: Floats | Ints) -> int:
        """Return the usual step time, given each launch's end."""
        ends_ns = np.append(0, through_ns)[self._of_steps]
        times_ns = np.diff(ends_ns) if len(ends_ns) > 1 else ends_ns
        return int(median_low(times_ns.tolist()))

    def slowdown(self, step_ns: int, most: float) -> float | None:
        """Return the CPU's slowdown by recording: the least whose replay takes no longer."""
        return _least_slowdown(lambda slowdown: self.step_ns(slowdown) <= step_ns, most)

    def slowdown_of_work(self, cpu_ns: int) -> float | None:
        """Return the CPU's slowdown by recording: the least whose working time is no longer."""
        return _least_slowdown(lambda slowdown: self.worked_ns(slowdown) <= cpu_ns, MOST_SLOWDOWN)

    def worked_ns(self, slowdown: float) -> int:
        """Return the CPU's working time in the usual step, without waits for values or copies."""
        begins, ends = self._work(self._steps, slowdown).reshape(2, -1)
        return int(median_low((ends - begins).tolist()))

    @property
    def is_accurate(self) -> bool:
        """Whether the replay of the recorded steps takes as long as they did."""
        return abs(self.step_ns(1.0) - self.recorded_ns) <= MAX_REPLAY_ERROR * self.recorded_ns

    def _waited_ns(
        self, at_launch: Floats, at_wait: Floats, busy_ns: Floats, counts: Rows | None
    ) -> Floats:
        """Return the CPU's total waiting time before the first wait and after each."""
        own, waited, through = self._waits, [0.0], 0.0
        bounds = np.searchsorted(self._start_ns, own.start_ns, side="right")
        # They then run one after the other without a break to the end of the last one.
        run_ns = np.append(0, np.cumsum(busy_ns))
        firsts = np.append(0, bounds)[: len(bounds)]
        begins_ns, is_any = np.full(len(bounds), -np.inf), firsts < bounds
        if is_any.any():
            slack_ns = (at_launch - run_ns[:-1])[: bounds[-1]]
            begins_ns[is_any] = np.maximum.reduceat(slack_ns, firsts[is_any])
        begins, runs = begins_ns + run_ns[firsts], run_ns[bounds] - run_ns[firsts]
        counts = np.ones(len(bounds), np.bool_) if counts is None else counts
        for begin, run, at, lag, is_there in _rows(begins, runs, at_wait, own.lag_ns, counts):
            through = max(begin + waited[-1], through) + run
            left = max(through - at - waited[-1], 0.0) + lag
            waited.append(waited[-1] + left * is_there)
        return np.array(waited)

    def _number(self, times_ns: Ints) -> Ints:
        return np.searchsorted(self._waits.start_ns, times_ns.ravel(), side="left")

    def _worked_ns(self, times_ns: Ints) -> Ints:
        """Return the CPU's working time, without waits, until each time."""
        return _without(self._not_working, times_ns.ravel()) - self._begin_ns


def _least_slowdown(is_enough: Callable[[float], bool], most: float) -> float | None:
    """Return the least slowdown that is enough; ``None`` if the most is not."""
    least, upper = 1.0, most
    if not is_enough(upper):
        return None
    for _ in range(_TRIES):
        middle = (least + upper) / 2
        least, upper = (least, middle) if is_enough(middle) else (middle, upper)
    return upper


def _gaps_and_delays(late_ns: Ints, waited_ns: Ints, replayed: Rows) -> tuple[Ints, Ints]:
    """Return the device's own time before each launch, and the way of the launch to it.

    From the end of a kernel to the begin of one that is in the queue a device takes a microsecond
    or two. So it does before a launch that the CPU was late for, once the CPU is faster. How long
    a launch behind others took to the device is unknown. It was behind them if it was in the queue
    for longer than a launch takes to a device that has nothing to do. From one node of a CUDA graph
    to the next it is unknown how long it takes without a recording: that is left out.
    """
    way_ns = _usual_ns(late_ns[late_ns < waited_ns], _QUEUED_NS)
    is_behind = (late_ns - waited_ns >= way_ns) & (waited_ns > 0) & (waited_ns < _QUEUED_NS)
    is_behind &= ~replayed
    usual_ns = np.where(replayed, 0, _usual_ns(waited_ns[is_behind], 0))
    gap_ns = np.where(is_behind, waited_ns, np.minimum(waited_ns, usual_ns))
    return gap_ns, np.where(is_behind | (waited_ns == 0), 0, late_ns)


def _usual_ns(times_ns: Ints, otherwise_ns: int) -> int:
    return median_low(times_ns.tolist()) if len(times_ns) else otherwise_ns


def _rows(*columns: npt.NDArray[Any]) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)


def _unslowed_spans(analysis: Analysis, slowed: Slowed) -> tuple[Ints, Ints]:
    """Return the spans in which the CPU did one thing for long: a recording does not slow those.

    It costs where events begin and end, and lines of Python. A kernel of the CPU, the garbage
    collector or a call into C for half a millisecond takes as long without it, and so does what
    one of torch's ops or a call of CUDA's runtime does by itself for a tenth of that.
    """
    if slowed is Slowed.ALL:
        return _NONE, _NONE
    events = analysis.recording.trace.events
    rows = np.flatnonzero(flag_rows(events.category, classify.is_on_cpu))
    times_ns = np.unique(np.append(events.start_ns[rows], events.end_of(rows)))
    times_ns = times_ns[times_ns >= analysis.steps[0].cpu_start_ns]
    took_ns = np.diff(times_ns)
    is_long = took_ns >= _LONG_NS
    if slowed is Slowed.NOT_NATIVE:
        is_native = flag_rows(events.name, lambda name: name.startswith("aten::"))
        is_native |= flag_rows(events.category, classify.is_runtime_call)
        native = np.flatnonzero(is_native & (events.duration_ns >= _NATIVE_NS))
        middle_ns = times_ns[:-1] + took_ns // 2
        in_native = is_within(middle_ns, events.start_ns[native], events.end_of(native))
        is_long |= (took_ns >= _NATIVE_NS) & in_native
    return times_ns[:-1][is_long], times_ns[1:][is_long]


def _is_host_copy(name: str) -> bool:
    return "Memcpy" in name and not classify.is_copy_on_device(name)


def _awaited_copies(analysis: Analysis, pace: CriticalPath) -> Ints:
    """Return the copies from or to the host whose call returned only after them: a wait."""
    launches, events = analysis.launches, analysis.recording.trace.events
    call, end_ns = np.maximum(pace.call, 0), launches.start_ns + launches.duration_ns
    is_copy = flag_rows(launches.name, _is_host_copy)
    is_copy &= (pace.call != NO_ROW) & ~pace.replayed
    is_within = (end_ns <= events.end_of(call)) & (launches.start_ns >= events.start_ns[call])
    return np.flatnonzero(is_copy & is_within & ~is_wait(events.name)[call])


def _waits(analysis: Analysis, start_ns: Ints, copies: Ints) -> Waits:
    """Return the waits within the steps; of nested ones the outer counts."""
    launches, events = analysis.launches, analysis.recording.trace.events
    rows = np.flatnonzero(is_wait(events.name))
    ends_ns = launches.start_ns + launches.duration_ns
    begin_ns = np.append(events.start_ns[rows], start_ns[copies])
    over = np.append(events.end_of(rows), ends_ns[copies])
    of_copies = np.zeros(len(copies), np.bool_)
    is_free = np.append(flag_rows(events.name, classify.is_free)[rows], of_copies)
    order = _disjoint_spans(
        begin_ns, over, analysis.steps[0].cpu_start_ns, analysis.steps[-1].cpu_end_ns
    )
    begin_ns, over, is_free = begin_ns[order], over[order], is_free[order]
    through = np.append(0, np.sort(ends_ns))[np.searchsorted(np.sort(ends_ns), over, side="right")]
    in_order = np.argsort(start_ns, kind="stable")
    last = np.searchsorted(start_ns[in_order], begin_ns, side="right") - 1
    is_copy = flag_rows(launches.name, lambda name: "HtoD" in name)[in_order]
    is_to_device = is_copy[last] & (last >= 0)
    last_launch = np.append(in_order, NO_ROW)[last]
    lag_ns = over - np.maximum(begin_ns, through)
    return Waits(begin_ns, over, lag_ns, ~is_to_device & ~is_free, is_free, last_launch)


def _disjoint_spans(begin_ns: Ints, over: Ints, least_ns: int, most_ns: int) -> Ints:
    """Return the rows of the spans between two times, in order, without nested ones."""
    order = np.lexsort((over, begin_ns))
    order = order[(begin_ns[order] >= least_ns) & (over[order] <= most_ns)]
    reached = np.append(least_ns, np.maximum.accumulate(over[order]))[: len(order)]
    return order[begin_ns[order] >= reached]
