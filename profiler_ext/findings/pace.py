"""Owns who sets the pace: for which launches the steps wait, and when a device waits for the CPU.

A kernel that gets quicker makes a step quicker only where the device is what the step waits for.
Where the CPU is behind, the device comes to the end of its queue and waits for the next launch,
and a quicker kernel makes that wait longer and nothing else. So each launch is followed to the
next one that the device had to wait for: a launch sets the pace where what follows it was in the
queue already, up to a launch at whose end the CPU itself was waiting for the device, or to the end
of a trace that ends with a full queue.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiler_ext.kineto import classify, names, waits
from profiler_ext.records import Analysis, Interned, Ints

NO_ROW = -1
_QUEUED_NS = 20_000
"""A launch that begins so long after the CPU enqueued it had to wait for others."""
Rows = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """One row for each launch.

    Attributes:
        enqueued_ns: when the CPU had enqueued it; its own start where the call is not known.
        call: row of the runtime call that launched it, ``NO_ROW`` where it is not known.
        sets: a shorter launch would make the step shorter.
        waited_ns: how long its device ran nothing before it.
        busy_ns: how long the device was busy with it and with nothing that began before it.
        cost_ns: how long the CPU took for it: since it had enqueued the launch before, and not
            longer than the device then waited for it and ran it.
        replayed: a CUDA graph launched it, together with others.
    """

    enqueued_ns: Ints
    call: Ints
    is_critical: Rows
    waited_ns: Ints
    busy_ns: Ints
    cost_ns: Ints
    replayed: Rows


def find_critical_path(analysis: Analysis) -> CriticalPath:
    """Tell which launches the steps wait for.

    Args:
        analysis: what attribution found.
    """
    launches, events = analysis.launches, analysis.recording.trace.events
    call = _calls(analysis)
    known = call != NO_ROW
    enqueued_ns = launches.start_ns.copy()
    enqueued_ns[known] = events.end_of(call[known])
    waits = np.flatnonzero(is_wait(events.name))
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
            (events.start_ns[waits], events.end_of(waits)),
        )
    cost_ns = np.minimum(_since_previous_launch(enqueued_ns), waited_ns + launches.duration_ns)
    return CriticalPath(enqueued_ns, call, is_critical, waited_ns, busy_ns, cost_ns, _replayed(analysis, call))


def is_wait(name: Interned) -> Rows:
    """Tell of each event whether the CPU waits for a device in it."""
    codes = [code for code, text in enumerate(name.strings) if waits.is_device_wait(text)]
    result: Rows = np.isin(name.codes, codes)
    return result


def _calls(analysis: Analysis) -> Ints:
    """Return the runtime call of each launch, by their correlation."""
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
    calls: Ints = np.where(result, np.append(rows, NO_ROW)[at], NO_ROW)
    return calls


def _idle_before_ns(start_ns: Ints, duration_ns: Ints) -> Ints:
    """Return how long the device had run nothing when each launch began; 0 for the first."""
    if not len(start_ns):
        return start_ns
    ends = np.maximum.accumulate(start_ns + duration_ns)
    waited: Ints = np.maximum(start_ns - np.append(start_ns[:1], ends[:-1]), 0)
    return waited


def _busy(start_ns: Ints, duration_ns: Ints) -> Ints:
    """Return how long each launch ran when none before it did any more."""
    ends = np.maximum.accumulate(start_ns + duration_ns)
    covered = np.append(start_ns[:1], ends[:-1])
    busy: Ints = np.maximum(start_ns + duration_ns - np.maximum(start_ns, covered), 0)
    return busy


def _since_previous_launch(enqueued_ns: Ints) -> Ints:
    """Return how long after the launch before it each launch was enqueued; 0 for the first."""
    order = np.argsort(enqueued_ns, kind="stable")
    since = np.zeros(len(enqueued_ns), np.int64)
    since[order[1:]] = np.diff(enqueued_ns[order])
    return since


def _replayed(analysis: Analysis, call: Ints) -> Rows:
    name = analysis.recording.trace.events.name
    flags = np.array([names.is_graph_launch(text) for text in name.strings], np.bool_)
    replayed = np.zeros(len(call), np.bool_)
    known = call != NO_ROW
    replayed[known] = flags[name.codes[call[known]]]
    return replayed


def _is_on_critical_path(
    start_ns: Ints, duration_ns: Ints, enqueued_ns: Ints, waits: tuple[Ints, Ints]
) -> Rows:
    """Let each launch be as the first one from it on that tells by itself."""
    if not len(start_ns):
        return np.zeros(0, np.bool_)
    ends = np.maximum.accumulate(start_ns + duration_ns)
    is_followed = np.append(enqueued_ns[1:] <= ends[:-1], False)
    is_awaited = is_within(ends, *waits)
    is_awaited[-1] |= start_ns[-1] - enqueued_ns[-1] > _QUEUED_NS
    tells = np.flatnonzero(is_awaited | ~is_followed)
    is_critical: Rows = is_awaited[tells[np.searchsorted(tells, np.arange(len(ends)))]]
    return is_critical


def is_within(times: Ints, starts: Ints, ends: Ints) -> Rows:
    """Tell of each time whether one of these spans, which may overlap, is open then.

    Args:
        times: the times.
        starts: when each span begins.
        ends: when it ends.
    """
    order = np.argsort(starts, kind="stable")
    reach = np.maximum.accumulate(np.append(np.int64(-1), ends[order]))
    within: Rows = reach[np.searchsorted(starts[order], times, side="right")] >= times
    return within
