"""The CPU's own work within a step: ops on the CPU, Python, data loading, allocation, checks.

The work is spans of the CPU's time, of one cause each, at the function that has most of the
device's idle time meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from profiler_ext.findings.critical_path import united
from profiler_ext.findings.facts import Facts, Rows, idle_by_line
from profiler_ext.findings.finding import NOWHERE, Location
from profiler_ext.findings.groups import Kind, LaunchGroup, longest_line
from profiler_ext.findings.rule import NO_ROWS
from profiler_ext.kineto import classify
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Codes, Ints, flag_rows
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.vocabulary import IdleCause

ANOMALY: Final = "anomaly detection"
# From one launch to the next Python takes some tens of microseconds; so long it does else
_LONG_NS = 1_000_000
_FREED_NS = 200_000  # memory of CPU tensors goes back to the system after an op for as long
_MIN_OP_NS = 20_000  # shorter ops make views
_STACK_NS = 50_000  # an op in which nothing is recorded for so long at its begin keeps a stack
_MOST = 0.75  # of the steps
# Metadata only: these compute nothing, on the CPU or elsewhere
_METADATA = """
    alias as_strided chunk detach detach_ empty empty_like empty_strided expand expand_as
    flatten is_nonzero item lift_fresh _local_scalar_dense new_empty new_empty_strided
    permute narrow numpy_T _reshape_alias reshape resize_ resolve_conj resolve_neg
    result_type select set_ slice split split_with_sizes squeeze squeeze_ t tensor_split to
    transpose unbind unflatten unsafe_chunk unsafe_split _unsafe_view unsqueeze view view_as
"""
_NO_WORK = frozenset(f"aten::{name}" for name in _METADATA.split())
_CHECKS = frozenset({"aten::isnan", "aten::_is_any_true", "aten::item"})
# What the CPU did while the device idled; what follows a wait is that wait's
_OF_CPU = (
    IdleCause.LAUNCHING,
    IdleCause.PYTHON,
    IdleCause.AUTOGRAD,
    IdleCause.END_OF_STEP,
    IdleCause.AFTER_SYNCHRONISATION,
)
# What is long is no way to the next launch: it costs as much where nothing was waited for
_OF_PYTHON = (IdleCause.PYTHON, IdleCause.END_OF_STEP, IdleCause.AFTER_SYNCHRONISATION)


@dataclass(frozen=True, slots=True)
class Spans:
    """Spans of the CPU's time, in order, that do not overlap."""

    start_ns: Ints
    end_ns: Ints

    def __len__(self) -> int:
        return len(self.start_ns)

    def at(self, rows: Ints | Rows) -> Spans:
        """Return some of them."""
        return Spans(self.start_ns[rows], self.end_ns[rows])

    def around(self, times_ns: Ints) -> Ints:
        """Return the number of the span that each time is in, or -1."""
        at = np.searchsorted(self.start_ns, times_ns, side="right") - 1
        is_open = (at >= 0) & (np.append(self.end_ns, -1)[at] >= times_ns)
        result: Ints = np.where(is_open, at, -1)
        return result


def work_of_cpu(facts: Facts) -> Iterator[LaunchGroup]:
    """Yield what the CPU does within the steps besides launching, of each cause and function."""
    if not facts.on_device or not facts.analysis.steps or not len(facts.analysis.idle):
        return
    events = facts.analysis.recording.trace.events
    loading = _merged(facts, np.flatnonzero(flag_rows(events.name, classify.is_data_loader)))
    yield from _group(facts, Kind.LOADING, loading)
    is_call = flag_rows(events.category, classify.is_runtime_call)
    is_allocation = is_call & flag_rows(events.name, classify.is_allocation)
    waits = None if facts.replay is None else facts.replay.waits.is_free
    for group in _group(facts, Kind.ALLOCATING, _merged(facts, np.flatnonzero(is_allocation))):
        yield replace(group, waits=waits)
    if ANOMALY in facts.analysis.recording.settings.debug_settings:
        yield from _checking(facts)
        return  # each op keeps a stack: what else it computes cannot be told
    ops = _ops_on_cpu(facts)
    ops = ops[loading.around(events.start_ns[ops]) < 0]
    yield from _computing(facts, ops, loading)


def _merged(facts: Facts, rows: Ints) -> Spans:
    """Return the spans of events within the steps; nested ones are one."""
    events = facts.analysis.recording.trace.events
    return _united(facts, events.start_ns[rows], events.end_of(rows))


def _united(facts: Facts, start_ns: Ints, end_ns: Ints) -> Spans:
    """Return the union of spans, cut to the steps."""
    steps = facts.analysis.steps
    start_ns = np.maximum(start_ns, steps[0].cpu_start_ns)
    end_ns = np.minimum(end_ns, steps[-1].cpu_end_ns)
    is_within = end_ns > start_ns
    return Spans(*united(start_ns[is_within], end_ns[is_within]))


def _group(facts: Facts, kind: Kind, spans: Spans) -> Iterator[LaunchGroup]:
    """Yield one group of some spans, if there are any."""
    if not len(spans):
        return
    pieces = facts.analysis.idle
    own = np.flatnonzero(spans.around(pieces.start_ns + pieces.duration_ns // 2) >= 0)
    kept = None
    if facts.replay is not None:
        kept = facts.replay.kept(spans.start_ns, spans.end_ns, facts.training.slowdown)
    count = max(round(len(spans) / len(facts.analysis.steps)), 1)
    yield LaunchGroup(kind, NOWHERE, NO_ROWS, count, 1.0, 1.0, work_kept=kept, pieces=own)


def _ops_on_cpu(facts: Facts) -> Ints:
    """Return the outermost ops that compute on the CPU: they launch nothing, and are no views.

    An optimizer's ops are left out: its step counters are on the CPU by design.
    """
    events = facts.analysis.recording.trace.events
    is_op = flag_rows(events.category, classify.is_op) & flag_rows(events.name, _computes)
    rows = np.flatnonzero(is_op & (events.duration_ns >= _MIN_OP_NS))
    calls_ns = np.sort(events.start_ns[flag_rows(events.category, classify.is_runtime_call)])
    begins, ends = events.start_ns[rows], events.end_of(rows)
    launches_none = np.searchsorted(calls_ns, begins) == np.searchsorted(calls_ns, ends)
    updates = _merged(facts, np.flatnonzero(flag_rows(events.name, classify.is_optimizer)))
    threads = np.unique(events.thread[facts.pace.call[facts.pace.call >= 0]])
    is_own = np.isin(events.thread[rows], threads) & (updates.around(begins) < 0)
    own: Ints = rows[launches_none & is_own]
    return own


def _computes(name: str) -> bool:
    return classify.is_dispatched_op(name) and name.startswith("aten::") and name not in _NO_WORK


def _computing(facts: Facts, ops: Ints, loading: Spans) -> Iterator[LaunchGroup]:
    """Yield the ops on the CPU and the Python that launches nothing, by function."""
    events = facts.analysis.recording.trace.events
    computing, silent = _merged(facts, ops), _silent(facts, loading)
    is_freeing = np.isin(silent.start_ns, events.end_of(ops))
    freed = silent.at(is_freeing | (_after_copies(facts).around(silent.start_ns) >= 0))
    # What is freed was computed by the op before
    computed_by = np.searchsorted(computing.start_ns, freed.start_ns, side="right") - 1
    is_python = silent.end_ns - silent.start_ns >= _LONG_NS
    python = silent.at(is_python & ~np.isin(silent.start_ns, freed.start_ns))
    of_python = _by_function(facts, python, *_OF_PYTHON)
    within = computing.around(events.start_ns[ops])
    for function, own in _by_function(facts, computing).items():
        names: Counter[str] = Counter()
        for row in ops[np.isin(within, own)].tolist():
            names[events.name[row]] += int(events.duration_ns[row])
        some = [computing.at(own), freed.at(np.isin(computed_by, own))]
        if function in of_python:
            some.append(python.at(of_python.pop(function)))
        spans = _united(facts, *(np.concatenate(each) for each in _columns(some)))
        yield from _placed(facts, Kind.COMPUTING, spans, max(names, key=lambda op: names[op]))
    marking = _lines_of_marks(facts)
    for (file, _), own in of_python.items():
        if file is None:
            own = own[~_has_mark(facts, python.at(own))]
        if _is_usual(facts, python.at(own)):
            groups = _placed(facts, Kind.PYTHON, python.at(own), "")
            yield from (each for each in groups if _line_of(each.location) not in marking)


def _after_copies(facts: Facts) -> Spans:
    """Return the time from each copy of pageable memory to the next op or call."""
    events = facts.analysis.recording.trace.events
    is_copy = flag_rows(facts.launches.name, lambda name: classify.pageable_copy(name) == "HtoD")
    calls = np.unique(facts.pace.call[np.flatnonzero(is_copy & (facts.pace.call >= 0))])
    is_work = flag_rows(events.category, classify.is_op)
    is_work |= flag_rows(events.category, classify.is_runtime_call)
    starts_ns = np.append(np.sort(events.start_ns[is_work]), np.iinfo(np.int64).max)
    ends_ns = np.sort(events.end_of(calls))
    return Spans(ends_ns, starts_ns[np.searchsorted(starts_ns, ends_ns)])


def _has_mark(facts: Facts, spans: Spans) -> Rows:
    """Tell in which spans a step ends: the profiler's own work, where no line says otherwise."""
    marks_ns = np.sort([each.cpu_end_ns for each in facts.analysis.steps])
    begins, ends = (np.searchsorted(marks_ns, each) for each in (spans.start_ns, spans.end_ns + 1))
    has: Rows = ends > begins
    return has


def _lines_of_marks(facts: Facts) -> set[tuple[str | None, int | None]]:
    """Return the lines at which the steps end: those of the profiler's ``step()``."""
    pieces, marks_ns = facts.analysis.idle, [each.cpu_end_ns for each in facts.analysis.steps]
    ends_ns = pieces.start_ns + pieces.duration_ns
    rows = [np.flatnonzero((pieces.start_ns <= each) & (ends_ns >= each)) for each in marks_ns]
    places = (pieces.places[at] for at in pieces.place[np.concatenate(rows)].tolist())
    return {_line_of(each) for each in places if each.line is not None}


def _line_of(place: Place | Location) -> tuple[str | None, int | None]:
    return place.file, place.line


def _is_usual(facts: Facts, spans: Spans) -> bool:
    """Tell whether most steps have some of it; else another process took the CPU."""
    bounds = np.array([(each.cpu_start_ns, each.cpu_end_ns) for each in facts.analysis.steps])
    begins, ends = np.searchsorted(spans.start_ns, bounds).T
    return bool((ends > begins).mean() >= _MOST)


def _columns(some: list[Spans]) -> tuple[list[Ints], list[Ints]]:
    return [each.start_ns for each in some], [each.end_ns for each in some]


def _silent(facts: Facts, loading: Spans) -> Spans:
    """Return when the CPU was in no op and no call for long: Python, but for an optimizer's."""
    events = facts.analysis.recording.trace.events
    is_work = flag_rows(events.category, classify.is_op)
    is_work |= flag_rows(events.category, classify.is_runtime_call)
    is_work |= flag_rows(events.name, classify.is_compiling_or_recording)
    is_work |= flag_rows(events.name, classify.is_optimizer)
    is_work |= flag_rows(events.category, classify.is_profilers)
    rows = np.flatnonzero(is_work)
    begins = np.append(events.start_ns[rows], loading.start_ns)
    working = _united(facts, begins, np.append(events.end_of(rows), loading.end_ns))
    gaps = Spans(working.end_ns[:-1], working.start_ns[1:])
    return gaps.at(gaps.end_ns - gaps.start_ns >= _FREED_NS)


def places_of(facts: Facts) -> Codes:
    """Return the place of each idle piece; of code too hot to record, the line that calls it."""
    return facts.analysis.derived.once("places of idle pieces", lambda: _places_of(facts))


def _places_of(facts: Facts) -> Codes:
    pieces = facts.analysis.idle
    is_hot = np.array([each.gap == GapReason.LINE_OF_HOT_CODE for each in pieces.places], np.bool_)
    is_known, rows = ~is_hot[pieces.place], np.arange(len(pieces))
    before = np.maximum.accumulate(np.where(is_known, rows, 0))
    after = np.minimum.accumulate(np.where(is_known, rows, len(rows) - 1)[::-1])[::-1]
    # The CPU was at one line before and after: that code was called there
    is_call = pieces.place[before] == pieces.place[after]
    is_call &= (pieces.span[before] == pieces.span) & (pieces.span[after] == pieces.span)
    result: Codes = np.where(is_call, pieces.place[before], pieces.place)
    return result


def _by_function(
    facts: Facts, spans: Spans, *causes: IdleCause
) -> dict[tuple[str | None, str | None], Ints]:
    """Return the spans of each function: that of most of the device's idle time meanwhile."""
    pieces = facts.analysis.idle
    middle_ns = pieces.start_ns + pieces.duration_ns // 2
    number = spans.around(middle_ns)
    rows = np.flatnonzero((number >= 0) & pieces.cause.where(*(causes or _OF_CPU)))
    times: dict[int, Counter[tuple[str | None, str | None]]] = {}
    columns = number[rows], places_of(facts)[rows], pieces.duration_ns[rows]
    for at, place, time_ns in zip(*(each.tolist() for each in columns), strict=True):
        where = pieces.places[place]
        times.setdefault(at, Counter())[where.file, where.function] += time_ns
    functions: dict[tuple[str | None, str | None], list[int]] = {}
    for at, counted in times.items():
        functions.setdefault(counted.most_common(1)[0][0], []).append(at)
    return {function: np.array(sorted(own), np.int64) for function, own in functions.items()}


def _placed(facts: Facts, kind: Kind, spans: Spans, what: str) -> Iterator[LaunchGroup]:
    """Yield a group at the line with most of the idle time, with how many lines have some."""
    for group in _group(facts, kind, spans):
        lines = idle_by_line(facts, group.idle(facts), places_of(facts))
        where = longest_line(facts, lines)
        yield replace(group, location=where, what=what, lines=len(lines))


def _checking(facts: Facts) -> Iterator[LaunchGroup]:
    """Yield what anomaly detection adds: a stack for each op, and checks after each node."""
    events = facts.analysis.recording.trace.events
    engine = _merged(facts, np.flatnonzero(flag_rows(events.name, classify.is_engine)))
    in_engine = engine.around(events.start_ns) >= 0
    is_op = flag_rows(events.category, classify.is_op)
    is_check = in_engine & flag_rows(events.name, lambda name: name in _CHECKS)
    checks = _merged(facts, np.flatnonzero(is_check))
    stacks = _stacks(facts, np.flatnonzero(is_op & ~in_engine))
    begins = np.append(checks.start_ns, stacks.start_ns)
    spans = _united(facts, begins, np.append(checks.end_ns, stacks.end_ns))
    own = np.flatnonzero(facts.in_steps(checks.around(facts.pace.enqueued_ns) >= 0))
    waits = None if facts.replay is None else np.isin(facts.replay.waits.last_launch, own)
    for group in _group(facts, Kind.CHECKING, spans):
        yield replace(group, launches=own, busy_kept=0.0, waits=waits)


def _stacks(facts: Facts, ops: Ints) -> Spans:
    """Return the begins of ops in which nothing else is recorded for long."""
    events = facts.analysis.recording.trace.events
    on_cpu = np.flatnonzero(flag_rows(events.category, classify.is_on_cpu))
    starts_ns = np.sort(events.start_ns[on_cpu])
    begins, ends = events.start_ns[ops], events.end_of(ops)
    after = np.append(starts_ns, np.iinfo(np.int64).max)[
        np.searchsorted(starts_ns, begins, side="right")
    ]
    until = np.minimum(after, ends)
    is_long = until - begins >= _STACK_NS
    return _united(facts, begins[is_long], until[is_long])
