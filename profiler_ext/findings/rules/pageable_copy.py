"""Owns the rule of copies between the device and pageable memory."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from profiler_ext.findings.facts import Facts, Lacking, where_of
from profiler_ext.findings.finding import Figure, FigureUnit, Sureness
from profiler_ext.findings.rule import Candidate, Rule
from profiler_ext.kineto import waits
from profiler_ext.records import Ints

_REMEDY = {
    "HtoD": "DataLoader(pin_memory=True) or tensor.pin_memory(), and tensor.to(device, "
    "non_blocking=True)",
    "DtoH": "copy into a pinned tensor with non_blocking=True, and read it a step later",
}


def _judge(facts: Facts) -> Iterable[Candidate] | Lacking:
    if not facts.on_device:
        return Lacking("the launches ran on the CPU, where nothing is copied to a device")
    if facts.in_steps(facts.named(waits.is_copy_of_unknown_memory)).any():
        return Lacking("the trace does not say of its copies whether they use pageable memory")
    return tuple(filter(None, (_of_way(facts, way) for way in _REMEDY)))


def _of_way(facts: Facts, way: str) -> Candidate | None:
    is_such = facts.named(lambda name: waits.pageable_copy(name) == way)
    launches = np.flatnonzero(facts.in_steps(is_such))
    launches = launches[facts.pace.call[launches] >= 0]
    return _candidate(facts, way, launches) if len(launches) else None


def _candidate(facts: Facts, way: str, launches: Ints) -> Candidate:
    events = facts.analysis.recording.trace.events
    in_calls_ns = events.duration_ns[facts.pace.call[launches]]
    moved = events.bytes_moved[facts.launches.event[launches]].filled(0)
    longest = facts.longest(launches)
    return Candidate(
        what=f"copies {'to' if way == 'HtoD' else 'from'} the device use pageable memory",
        at_stake_ns=facts.of_usual_step(launches, _held_up_ns(facts, launches)),
        sureness=Sureness.UPPER_BOUND,
        remedy=_REMEDY[way],
        where=where_of(facts.place(longest), facts.launches.name[longest]),
        why=(
            Figure("copies a step", facts.count_in_usual_step(launches)),
            Figure("bytes a step", facts.of_usual_step(launches, moved), FigureUnit.BYTES),
            Figure(
                "the CPU is in their calls for",
                facts.of_usual_step(launches, in_calls_ns),
                FigureUnit.NS,
            ),
        ),
        launches=launches,
    )


def _held_up_ns(facts: Facts, launches: Ints) -> Ints:
    """Return how long each copy's call lasts once the device has run what it was given before."""
    events, call = facts.analysis.recording.trace.events, facts.pace.call[launches]
    drained_ns = facts.launches.start_ns[launches] - facts.pace.waited_ns[launches]
    since_ns = np.maximum(events.start_ns[call], drained_ns)
    held_up_ns: Ints = np.maximum(events.end_of(call) - since_ns, 0)
    return held_up_ns


RULE = Rule(
    name="pageable_copy",
    title="Copies between the device and pageable memory",
    means="Batches are copied to the device from ordinary memory, or results from the device into "
    "it: the trace calls such copies `Pageable -> Device` and `Device -> Pageable`.",
    because="The driver copies pageable memory by way of a small pinned buffer of its own, at a "
    "part of the bus's speed, and the CPU waits in the call until it is done: it launches nothing "
    "meanwhile.",
    remedy="`DataLoader(pin_memory=True)` and `tensor.to(device, non_blocking=True)`: the copy "
    "then runs beside the kernels of the step before.",
    stake="The time of the usual step that the CPU is in the calls of these copies, as far as the "
    "device has run all that it was given before: until then a call holds nothing up. It is an "
    "upper bound, as a pinned copy takes time too.",
    judge=_judge,
)
