"""Facts of an analysis for rules: times per step, launches' places, idle time, eager kernels."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from statistics import median_low
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler_ext.findings import critical_path, unprofiled_step
from profiler_ext.findings.finding import NOWHERE, Location
from profiler_ext.kineto.names import owners_reading
from profiler_ext.records.analysis import Analysis, Launches, Place, Step
from profiler_ext.records.compiles import Compilation
from profiler_ext.records.events import Codes, Events, Ints, flag_rows
from profiler_ext.records.lineage import Frame
from profiler_ext.records.share_sums import largest_places, sum_by
from profiler_ext.records.step_kinds import KindOfSteps, kinds_of_steps
from profiler_ext.records.vocabulary import IdleCause, Phase, Scope, StepKind
from profiler_ext.rooflines.rooflines import Rooflines, rooflines

Rows = npt.NDArray[np.bool_]
# A step above this multiple of the median is an outlier, with a compile for example
_OUTLIER_RATIO = 2
FUSION_SAVING: Final = 0.6  # of their time, once compiled, by the trials of ``uncompiled``
FUSED_AWAY: Final = 2 / 3  # of 36 bytes for each number of a cross entropy 8 to 12 are left
_NATIVE = "at::native::"
_COMPLEX = "c10::complex"  # Inductor generates no code for them
# Nor for these (torch/_inductor/lowering.py, make_fallback), or what their sums or reads here and
# there take: of grid_sample as long as torch's kernel, or longer (pytorch/pytorch#84350, #136953)
_NOT_FUSED = re.compile(
    r"aten::(_?fft_|i?stft|_?ctc_loss|_thnn_fused|sort|topk|kthvalue|(nan)?median|mode$|_?unique|"
    r"nonzero|masked_select|masked_scatter|multinomial|randperm|_?histogram|histc|bincount|"
    r"searchsorted|_?[cp]dist|_?embedding_bag|embedding_(dense_backward|renorm_)|index_add|"
    r"index_reduce|scatter_add|scatter_reduce|_?index_put|_?segment_reduce|_coalesce|_?to_sparse|_trilinear|"
    r"_?linalg_(?!vector_norm|cross|diagonal)|_?cholesky|geqrf|ormqr|lu_unpack|triangular_solve|"
    r"_upsample_\w+_aa|grid_sampler|(adaptive_\w+|fractional_\w+|max_pool3d\w+|replication_pad\dd|"
    r"upsample_(?!nearest2d)\w+)_backward)"
)
# The sums for biases, and casts, within their calls are generated
_CONVOLVES = re.compile(r"aten::(\w*convolution\w*|_conv_depthwise\dd|_?slow_conv\w*)$")
_PHASES = (Phase.FORWARD, Phase.BACKWARD)


def sum_by_step(steps: Sequence[Step], number: Ints, amount: Ints) -> list[int]:
    """Return the sum of an amount in each step, by the step number of each amount."""
    if not steps:
        return []
    known, of_step = np.unique([step.number for step in steps], return_inverse=True)
    at = np.minimum(np.searchsorted(known, number), len(known) - 1)
    is_of = known[at] == number
    sums = sum_by(at[is_of], amount[is_of], len(known))
    result: list[int] = sums[of_step].tolist()
    return result


def time_within(parts: Sequence[tuple[int, int]], begins: Ints, ends: Ints) -> list[int]:
    """Return how long spans of time are within each part; what overlaps counts for each span."""
    bounds = np.array(parts, np.int64).reshape(-1, 2).T
    until = [_before(begins, own) - _before(ends, own) for own in bounds]
    result: list[int] = (until[1] - until[0]).tolist()
    return result


def _before(times: Ints, moments: Ints) -> Ints:
    """Return, for each moment, the total time since these earlier times."""
    ordered = np.sort(times)
    count = np.searchsorted(ordered, moments)
    sums = np.concatenate([[0], np.cumsum(ordered)])
    before: Ints = count * moments - sums[count]
    return before


def enclosing(events: Events, rows: Ints, is_named: Callable[[str], bool]) -> Ints:
    """Return the last begun op with such a name around each event; itself without one."""
    named = np.flatnonzero(flag_rows(events.name, is_named))
    named = named[np.lexsort((events.start_ns[named], events.thread[named]))]
    result = rows.copy()
    for thread in np.unique(events.thread[named]).tolist():
        own = named[events.thread[named] == thread]
        on_thread = np.flatnonzero(events.thread[rows] == thread)
        at = (
            np.searchsorted(events.start_ns[own], events.start_ns[rows[on_thread]], side="right")
            - 1
        )
        around = own[np.maximum(at, 0)]
        is_open = (at >= 0) & (events.end_ns[around] >= events.end_ns[rows[on_thread]])
        result[on_thread[is_open]] = around[is_open]
    return result


@dataclass(frozen=True, slots=True)
class CannotJudge:
    """Why a rule cannot be judged: what the session lacks, or what failed."""

    reason: str


class Facts:
    """What rules read of an analysis; each is computed on first use."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis

    @property
    def launches(self) -> Launches:
        """The launches."""
        return self.analysis.launches

    @cached_property
    def step_ns(self) -> int:
        """Time of a recorded step: the mean, as in the breakdown; with outliers the median."""
        walls = [step.wall_ns for step in self.analysis.steps]
        return self.usual(walls) if walls else 0

    def usual(self, of_steps: Sequence[int]) -> int:
        """Return the mean of an amount per step; the lower median if steps are unlike."""
        walls = [step.wall_ns for step in self.analysis.steps]
        if max(walls) > _OUTLIER_RATIO * median_low(walls):
            return median_low(of_steps)
        return sum(of_steps) // len(of_steps)

    @cached_property
    def busy_ns(self) -> int:
        """Time that the busiest device works for the usual step."""
        devices = np.unique(self.launches.device).tolist()
        rows = (np.flatnonzero(self.launches.device == device) for device in devices)
        return max(
            (self.median_per_step(own, self._profiled_critical_path.busy_ns[own]) for own in rows),
            default=0,
        )

    @cached_property
    def cpu_ns(self) -> int:
        """The CPU's working time in the usual step: between its marks, without waits.

        And without what we read in it of who holds which memory.
        """
        events = self.analysis.recording.trace.events
        is_ours = flag_rows(events.name, lambda name: owners_reading(name) is not None)
        rows = np.flatnonzero(critical_path.is_wait(events.name) | is_ours)
        full = np.stack(self._profiled_critical_path.waits_for_room)
        other = np.stack([events.start_ns[rows], events.end_ns[rows]])
        spans = [(step.cpu_start_ns, step.cpu_end_ns) for step in self.analysis.steps]
        waited = time_within(spans, *critical_path.united(*np.concatenate([other, full], axis=1)))
        worked = [end - start - own for (start, end), own in zip(spans, waited, strict=True)]
        return max(median_low(worked), 0) if worked else 0

    @cached_property
    def profiler_ns(self) -> int:
        """A device's idle time in the usual step because the profiler works."""
        idle = self.analysis.idle
        rows = idle.cause.where(IdleCause.PROFILER)
        sums = sum_by_step(self.analysis.steps, idle.step[rows], idle.duration_ns[rows])
        return median_low(sums) // max(self.idle_devices, 1) if sums else 0

    @cached_property
    def idle_devices(self) -> int:
        """The number of devices that idled at some time."""
        return len(np.unique(self.analysis.idle.device))

    @cached_property
    def on_device(self) -> bool:
        """Whether the launches ran on a device, and not on the CPU."""
        return not bool(np.ma.getmaskarray(self.launches.stream).all())

    @cached_property
    def pace(self) -> critical_path.CriticalPath:
        """Which launches the steps wait for: all where in training a device is never idle."""
        if not self.training.is_device_bound:
            return self._profiled_critical_path
        is_critical = np.ones(len(self.launches), np.bool_)
        return replace(self._profiled_critical_path, is_critical=is_critical)

    @cached_property
    def _profiled_critical_path(self) -> critical_path.CriticalPath:
        return critical_path.find_critical_path(self.analysis)

    @cached_property
    def replay(self) -> critical_path.Replay | None:
        """The steps on the busiest device; where replaying them does not give them, none."""
        if not len(self.launches) or not self.analysis.steps:
            return None
        devices, number = np.unique(self.launches.device, return_inverse=True)
        device = int(devices[np.bincount(number, self._profiled_critical_path.busy_ns).argmax()])
        make = partial(critical_path.Replay, self.analysis, self._profiled_critical_path, device)
        replay, before_ns = make(), self._unprofiled_steps_ns
        # Steps before that no replay gives show that more was slowed. The slowdown that is assumed
        # without them is that of all but long work.
        for slowed in critical_path.Slowed if before_ns else ():
            replay = make(slowed=slowed)
            if replay.slowdown(median_low(before_ns), unprofiled_step.MAX_SLOWDOWN) is not None:
                break
        return replay if replay.is_accurate else None

    @cached_property
    def training(self) -> unprofiled_step.Training:
        """The usual step without recording."""
        settings = self.analysis.recording.settings
        return unprofiled_step.unprofiled_step(
            self._recorded, self._unprofiled_steps_ns, self.replay, settings
        )

    @property
    def training_steps_ns(self) -> tuple[int, ...]:
        """The times of the steps before the recording; none where unknown."""
        on_device = self.analysis.recording.settings.unprofiled_steps_on_device
        return self._unprofiled_steps_ns if on_device or self.training.is_known else ()

    @cached_property
    def _recorded(self) -> unprofiled_step.ProfiledStep:
        own_ns = self.step_ns, self.busy_ns, self.cpu_ns, self.profiler_ns
        return unprofiled_step.ProfiledStep(*own_ns)

    @cached_property
    def _unprofiled_steps_ns(self) -> tuple[int, ...]:
        return unprofiled_step.unprofiled_steps_ns(self._recorded, self.analysis.recording.settings)

    @cached_property
    def idle_ns(self) -> int:
        """A device's idle time in the usual step without recording, at most."""
        return max(self.training.most_ns - self.busy_ns, 0)

    @cached_property
    def compiles(self) -> tuple[Compilation, ...] | CannotJudge:
        """What torch compiled, and how long that took."""
        if self.analysis.recording.compiles:
            return self.analysis.recording.compiles
        if self.analysis.recording.graphs:
            return CannotJudge("the recording does not tell what compiling took")
        return CannotJudge("nothing was compiled")

    @cached_property
    def kind_of_steps(self) -> KindOfSteps | None:
        """What the steps of inference do, where their tokens are known."""
        return next((each for each in kinds_of_steps(self.analysis) if each.steps), None)

    @property
    def is_decoding(self) -> bool:
        """Whether the steps generate tokens one after another."""
        kind = None if self.kind_of_steps is None else self.kind_of_steps.kind
        return kind in (StepKind.DECODE, StepKind.SPECULATIVE)

    @cached_property
    def rooflines(self) -> Rooflines:
        """What the launches moved and computed, by which unit, and how near that is to the best."""
        return rooflines(self.analysis)

    def all_places(self, predicate: Callable[[Place], bool]) -> Rows:
        """Return which launches have places of one kind and no others."""
        flags = np.array([predicate(place) for place in self.analysis.places], np.bool_)
        shares = self.analysis.shares
        all_places = self.main_place >= 0
        all_places[shares.launch[~flags[shares.place]]] = False
        return all_places

    def mainly(self, predicate: Callable[[Place], bool]) -> Rows:
        """Return which launches have their largest share at a place of one kind."""
        flags = np.array([*map(predicate, self.analysis.places), False], np.bool_)
        result: Rows = flags[self.main_place]  # the last one where there is no place
        return result

    def named(self, predicate: Callable[[str], bool]) -> Rows:
        """Return which launches have a name of one kind."""
        return flag_rows(self.launches.name, predicate)

    def of_op(self, predicate: Callable[[str], bool]) -> Rows:
        """Return which launches have an ``innermost_op`` of one kind."""
        events, op = self.analysis.recording.trace.events, self.launches.op_event
        by_place = self.mainly(lambda place: predicate(place.aten_op or ""))
        flags = np.array([*map(predicate, events.name.strings), False], np.bool_)
        by_event = flags[np.append(events.name.codes, -1)[op.filled(-1)]]
        is_by_event = self.launches.scope.where(Scope.EAGER) & ~np.ma.getmaskarray(op)
        return np.where(is_by_event, by_event, by_place)

    def in_steps(self, rows: Rows) -> Rows:
        """Return which of these launches were enqueued in a profiled step."""
        return rows & self.launches.in_steps

    def median_per_step(self, launches: Ints, amount_ns: Ints) -> int:
        """Return the lower median over the steps of an amount of time."""
        step = self.launches.step[launches].filled(-1)
        sums = sum_by_step(self.analysis.steps, step, amount_ns)
        return median_low(sums) if sums else 0

    def critical_ns(self, launches: Ints, gone: critical_path.Floats | float = 1.0) -> Ints:
        """Return the step's gain where a part of each launch's time is gone, by launch.

        Where the steps without profiling are known, a replay of these tells: it has launches on the
        critical path that the recorded step, whose CPU is slower, does not wait for.
        """
        kept = self._replayable(launches)
        if kept is None:
            return (gone * self.paced_ns(launches)).astype(np.int64)
        kept.busy[launches] = 1 - gone
        gone_ns = (gone * self.launches.duration_ns[launches]).astype(np.int64)
        return self._divided(self.shorter_ns(kept), launches, gone_ns)

    def paced_ns(self, launches: Ints) -> Ints:
        """Return the time of launches that set the pace: of all, if a device hardly idles."""
        training, duration_ns = self.training, self.launches.duration_ns[launches]
        if training.is_known and self.busy_ns >= unprofiled_step.FILLED * training.step_ns:
            return duration_ns
        return np.where(self.pace.is_critical[launches], duration_ns, 0)

    def _replayable(self, launches: Ints) -> critical_path.Remedied | None:
        """Return what a replay without profiling begins with; none where it says no more."""
        replay = self._replay_without_profiling
        if replay is None or self.pace.is_critical[launches].all():
            return None
        # Within a CUDA graph a launch begins when the one before it is over, not when enqueued
        is_own = (self.launches.device == replay.device) & ~self.pace.replayed
        return replay.unchanged if is_own[launches].all() else None

    @cached_property
    def _replay_without_profiling(self) -> critical_path.Replay | None:
        """The replay, where it gives the steps before the recording."""
        replay, training = self.replay, self.training
        if replay is None or not training.is_known:
            return None
        off_ns = abs(replay.step_ns(training.slowdown) - training.step_ns)
        return replay if off_ns <= critical_path.MAX_REPLAY_ERROR * training.step_ns else None

    def shorter_ns(self, remedied: critical_path.Remedied) -> int:
        """Return how much shorter the usual step is with a remedy, in a replay."""
        if self.replay is None:
            return 0
        slowdown = self.training.slowdown
        return max(self.replay.step_ns(slowdown) - self.replay.step_ns(slowdown, remedied), 0)

    def _divided(self, gain_ns: int, launches: Ints, by_ns: Ints) -> Ints:
        """Return a step's gain divided among launches by a time of each."""
        part = gain_ns / max(self.median_per_step(launches, by_ns), 1)
        return (part * by_ns).astype(np.int64)

    def removal_saving_ns(
        self, launches: Ints, *, with_python: bool = False, of_op: str | None = None
    ) -> Ints:
        """Return how much shorter the step would be without launches, by launch."""
        # That is its time where the step waits for the device, else its cost on the CPU; within a
        # CUDA graph the CPU cost is 0. An op that has other launches stays, but for the call.
        # with_python: the Python code before its op would go, too
        # of_op: the name of the op that would go, if it is around the innermost one
        cost_ns = np.where(self.pace.replayed, 0, self.pace.cost_ns)
        if not with_python:
            events, op = self.analysis.recording.trace.events, self.launches.op_event
            row = op.filled(0)
            if of_op is not None:
                row = enclosing(events, row, of_op.__eq__)
            op_ns = np.where(np.ma.getmaskarray(op), 0, events.duration_ns[row])
            op_ns = np.where(self._leaves_op(launches), self._call_ns, op_ns)
            cost_ns = np.minimum(cost_ns, op_ns)
        cost_ns, duration_ns = cost_ns[launches], self.launches.duration_ns[launches]
        kept = self._replayable(launches)
        if kept is not None:
            kept.cpu[launches] = 1 - cost_ns / np.maximum(self.pace.since_ns[launches], 1)
            kept.busy[launches] = 0
            return self._divided(self.shorter_ns(kept), launches, duration_ns + cost_ns)
        cost_ns = (cost_ns / self.training.slowdown).astype(np.int64)
        return np.where(self.pace.is_critical[launches], duration_ns, cost_ns)

    def _leaves_op(self, launches: Ints) -> Rows:
        """Flag launches whose op launches something else, too, and stays without these."""
        op = self.launches.op_event
        ops, of_launch = np.unique(op.filled(-1), return_inverse=True)
        others = np.bincount(of_launch, minlength=len(ops))
        others -= np.bincount(of_launch[np.unique(launches)], minlength=len(ops))
        return (others[of_launch] > 0) & ~np.ma.getmaskarray(op)

    @cached_property
    def _call_ns(self) -> Ints:
        """Time of the runtime call of each launch; 0 where it is unknown."""
        duration_ns, call = self.analysis.recording.trace.events.duration_ns, self.pace.call
        return np.where(call == critical_path.NO_ROW, 0, duration_ns[np.maximum(call, 0)])

    def removed_per_step_ns(self, launches: Ints, *, leaving: bool = False) -> int:
        """Return how much shorter the step would be without launches and the Python before them."""
        # leaving: the Python after them goes, too, until the op of the next launch
        # A replay tells where the device waits for the CPU only now and then
        if self.replay is None or self.pace.is_critical[launches].all():
            return self.median_per_step(
                launches, self.removal_saving_ns(launches, with_python=True)
            )
        kept = self.replay.unchanged
        if leaving:
            after, part = self._after(launches)
            kept.cpu[after] = part
        kept.cpu[launches] = kept.busy[launches] = 0
        return self.shorter_ns(kept)

    def _after(self, launches: Ints) -> tuple[Ints, critical_path.Floats]:
        """Return what the CPU launched next, and the part of its time until then in that op."""
        enqueued_ns, op = self.pace.enqueued_ns, self.launches.op_event
        rows = np.argsort(enqueued_ns, kind="stable")
        is_own = np.isin(rows, launches)
        at = np.flatnonzero(is_own[:-1] & ~is_own[1:] & ~np.ma.getmaskarray(op)[rows[1:]]) + 1
        until_ns, since_ns = enqueued_ns[rows[at]], enqueued_ns[rows[at - 1]]
        begin_ns = self.analysis.recording.trace.events.start_ns[op[rows[at]].filled(0)]
        in_op_ns = until_ns - np.clip(begin_ns, since_ns, until_ns)
        return rows[at], in_op_ns / np.maximum(until_ns - since_ns, 1)

    def idle_before(self, launches: Ints) -> Ints:
        """Return the rows of the idle pieces that ended with one of these launches."""
        idle, ended = self.analysis.idle, self._span_ends
        chosen = np.isin(ended, self.launches.start_ns[launches])
        return np.flatnonzero(chosen[idle.span]) if len(ended) else np.empty(0, np.int64)

    def launch_after(self, idle: Ints) -> Ints:
        """Return the row of the launch that ended each piece of idle time, or -1."""
        rows = np.append(np.argsort(self.launches.start_ns, kind="stable"), -1)
        starts_ns = self.launches.start_ns[rows[:-1]]
        ended_ns = self._span_ends[self.analysis.idle.span[idle]]
        at = np.searchsorted(starts_ns, ended_ns)
        is_known = np.append(starts_ns, -1)[at] == ended_ns
        launch: Ints = np.where(is_known, rows[at], -1)
        return launch

    @cached_property
    def _span_ends(self) -> Ints:
        idle = self.analysis.idle
        ends = np.zeros(int(idle.span.max(initial=-1)) + 1, np.int64)
        np.maximum.at(ends, idle.span, idle.start_ns + idle.duration_ns)
        return ends

    def longest(self, launches: Ints) -> int:
        """Return the row of the longest launch at the line where such launches took longest."""
        of_line = max(
            launches_by_line(self, launches),
            key=lambda own: int(self.launches.duration_ns[own].sum()),
        )
        return int(of_line[int(self.launches.duration_ns[of_line].argmax())])

    def launches_per_step(self, launches: Ints) -> int:
        """Return the number of these launches in the usual step."""
        return self.median_per_step(launches, np.ones(len(launches), np.int64))

    @cached_property
    def main_place(self) -> Ints:
        """Index of the place of the largest share of each launch, the first of equal ones."""
        return largest_places(self.analysis)

    def place(self, launch: int) -> Place:
        """Return the place of the largest share of a launch."""
        return self.analysis.places[int(self.main_place[launch])]

    def innermost_op(self, launch: int) -> str:
        """Return the op that launched an eager kernel itself; else the place's."""
        op = self.launches.op_event[launch]
        if self.launches.scope[launch] != Scope.EAGER or op is np.ma.masked:
            return self.place(launch).aten_op or ""
        return self.analysis.recording.trace.events.name[int(op)]

    def called_ops(self, launches: Ints) -> Ints:
        """Return the event of the op that Python called for each launch; -1 where unknown."""
        # An op that loops over parts of a tensor itself (``_pack_padded_sequence``) is called once
        events, places = self.analysis.recording.trace.events, self.analysis.places
        event, place = self.launches.op_event[launches].filled(-1), self.main_place[launches]
        called = event.copy()
        for at in np.unique(place[(event >= 0) & (place >= 0)]).tolist():
            own = np.flatnonzero((place == at) & (event >= 0))
            called[own] = enclosing(events, event[own], (places[at].aten_op or "").__eq__)
        return called

    def compile_id(self, launch: int) -> str | None:
        """Return torch's number of the compile whose graph a launch is of."""
        graph = self.launches.graph[launch]
        if graph is np.ma.masked:
            return None
        return self.analysis.recording.graphs[int(graph)].compile_id


def facts_of(analysis: Analysis) -> Facts:
    """Return the facts of an analysis; they are found once."""
    return analysis.derived.once("facts", lambda: Facts(analysis))


def shared_line(facts: Facts, launches: Ints, others: Ints | None = None) -> Location:
    """Return the innermost line that all of these launches come from; ``NOWHERE`` without one.

    Of the lines that all share, those that no other launches come from are preferred.
    """
    stacks = _stacks(facts, launches)
    shared = [frames[0] for frames in zip(*stacks, strict=False) if len(set(frames)) == 1]
    if others is not None:
        lines = {(each.file, each.line) for own in _stacks(facts, others) for each in own}
        shared = [each for each in shared if (each.file, each.line) not in lines] or shared
    return Location(shared[-1].file, shared[-1].line, shared[-1].code) if shared else NOWHERE


def _stacks(facts: Facts, launches: Ints) -> list[tuple[Frame, ...]]:
    places = np.unique(facts.main_place[launches]).tolist()
    return [facts.analysis.places[at].stack for at in places if at >= 0]


def location_of(place: Place, kernel: str | None = None, graph: str | None = None) -> Location:
    """Return the place of a finding."""
    return Location(place.file, place.line, place.code, place.module, kernel, graph)


def idle_pieces(facts: Facts, *causes: IdleCause) -> Ints:
    """Return the rows of the pieces of idle time that have one of these causes."""
    return np.flatnonzero(facts.analysis.idle.cause.where(*causes))


def median_per_step(facts: Facts, rows: Ints) -> int:
    """Return the time of pieces in the usual step, on one device (lower median)."""
    idle = facts.analysis.idle
    step, duration_ns = idle.step[rows], idle.duration_ns[rows]
    sums = sum_by_step(facts.analysis.steps, step, duration_ns)
    return median_low(sums) // max(facts.idle_devices, 1) if sums else 0


def idle_per_step(facts: Facts, rows: Ints) -> int:
    """Return the time of pieces in a step of ``Facts.step_ns``, on one device.

    It is a mean where that is one, so that it can be held against the step and its overhead.
    """
    idle = facts.analysis.idle
    sums = sum_by_step(facts.analysis.steps, idle.step[rows], idle.duration_ns[rows])
    return facts.usual(sums) // max(facts.idle_devices, 1) if sums else 0


def idle_spans_per_step(facts: Facts, rows: Ints) -> int:
    """Return in how many idle spans these pieces are, in the usual step."""
    idle = facts.analysis.idle
    step, span = idle.step[rows], idle.span[rows]
    own = np.unique(np.stack([step, span]), axis=1)[0]
    counts = sum_by_step(facts.analysis.steps, own, np.ones_like(own))
    return median_low(counts) if counts else 0


def idle_by_line(facts: Facts, rows: Ints, places: Codes) -> dict[Location, Ints]:
    """Group the pieces by the line of their cause; ``NOWHERE`` has those without one."""
    # places: the place of each piece of all: where the CPU was, or that of the cause
    lines: dict[tuple[str | None, int | None], list[tuple[Location, Ints]]] = {}
    order = np.argsort(places[rows], kind="stable")
    each, firsts = np.unique(places[rows][order], return_index=True)
    for at, own in zip(each.tolist(), np.split(rows[order], firsts[1:]), strict=False):
        place = facts.analysis.idle.places[at]
        where = NOWHERE if place.line is None else location_of(place)
        lines.setdefault((where.file, where.line), []).append((where, own))
    columns = (zip(*of_line, strict=True) for of_line in lines.values())
    return {
        replace(where[0], module=None) if len(set(where)) > 1 else where[0]: np.sort(
            np.concatenate(own)
        )
        for where, own in columns
    }


def eager_kernels(facts: Facts) -> Ints:
    """Return the rows of torch's own eager kernels with a line, of those that compiling fuses."""
    # Products and attention are libraries'; the optimizer's are at no line.
    is_native = facts.named(lambda name: _NATIVE in name and not is_of_complex(name))
    is_native &= ~facts.of_op(lambda op: _is_not_fused(op) or _CONVOLVES.match(op) is not None)
    is_native &= facts.launches.scope.where(Scope.EAGER)
    return np.flatnonzero(facts.in_steps(is_native & facts.all_places(_is_model_line)))


def is_of_complex(name: str) -> bool:
    """Tell whether a kernel computes with complex numbers."""
    return _COMPLEX in name


def _is_not_fused(op: str) -> bool:
    return _NOT_FUSED.match(op) is not None


def launches_by_line(facts: Facts, launches: Ints) -> Iterator[Ints]:
    """Return the rows of the launches of each line."""
    lines: dict[tuple[str | None, int | None], list[int]] = {}
    for launch in launches.tolist():
        place = facts.place(launch)
        lines.setdefault((place.file, place.line), []).append(launch)
    return (np.array(own, np.int64) for own in lines.values())


def launches_by_function(
    facts: Facts, launches: Ints
) -> Iterator[tuple[tuple[str | None, str | None], Ints]]:
    """Return the file and name of each function, with the rows of the launches at its lines."""
    functions: dict[tuple[str | None, str | None], list[int]] = {}
    for launch in launches.tolist():
        place = facts.place(launch)
        functions.setdefault((place.file, place.function), []).append(launch)
    return ((each, np.array(own, np.int64)) for each, own in functions.items())


def _is_model_line(place: Place) -> bool:
    is_line = place.phase in _PHASES and place.line is not None
    return is_line and not _is_not_fused(place.aten_op or "")
