"""The rule for copies between the device and pageable memory."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, Rows, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.groups import Kind
from profiler_ext.findings.launch_groups import groups_of
from profiler_ext.findings.rule import NO_ROWS, Candidate, Rule
from profiler_ext.findings.waiting import copied_back
from profiler_ext.kineto import classify
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase

OF_MODULES = "modules copy tensors to the device in each call"
KEEP = (
    "keep them on the device: register_buffer and model.to(device), once; offload what does not fit"
)
_BATCHES = (
    "copies to the device use pageable memory",
    "DataLoader(pin_memory=True) or tensor.pin_memory(), and tensor.to(device, non_blocking=True)",
)
_RESULTS = (
    "copies from the device use pageable memory",
    "copy into a pinned tensor with non_blocking=True, and read it a step later",
)
_IN_MODULES = (Phase.FORWARD, Phase.RECOMPUTE)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    if facts.in_steps(facts.named(classify.is_copy_of_unknown_memory)).any():
        return CannotJudge("the trace does not say of its copies whether they use pageable memory")
    inside = is_in_module(facts)
    to_device, to_host = (_copies(facts, way) for way in ("HtoD", "DtoH"))
    parts = (
        (to_device[~inside[to_device]], to_device, _BATCHES),
        (to_device[inside[to_device]], to_device, (OF_MODULES, KEEP)),
        (to_host, NO_ROWS, _RESULTS),
    )
    return [_candidate(facts, *part) for part in parts if len(part[0])]


def is_in_module(facts: Facts) -> Rows:
    """Tell which launches are of modules within the model: what the model is given is not."""
    return facts.mainly(lambda place: bool(place.module) and place.phase in _IN_MODULES)


def _copies(facts: Facts, direction: str) -> Ints:
    is_match = facts.named(lambda name: classify.pageable_copy(name) == direction)
    launches = np.flatnonzero(facts.in_steps(is_match & ~copied_back(facts)))
    return launches[facts.pace.call[launches] >= 0]


def _candidate(facts: Facts, launches: Ints, to_device: Ints, words: tuple[str, str]) -> Candidate:
    # to_device: all copies to the device, whose waits are replayed together
    summary, remedy = words
    events = facts.analysis.recording.trace.events
    in_calls_ns = events.duration_ns[facts.pace.call[launches]]
    moved = events.bytes_moved[facts.launches.event[launches]].filled(0)
    longest = facts.longest(launches)
    own_ns, every_ns = (_blocking_ns(facts, each) for each in (launches, to_device))
    part = own_ns.sum() / max(int(every_ns.sum()), 1)
    waited_ns = sum(each.saving_ns for each in groups_of(facts, Kind.COPIES) if len(to_device))
    return Candidate(
        summary=summary,
        est_saving_ns=max(facts.median_per_step(launches, own_ns), int(part * waited_ns)),
        confidence=Confidence.UPPER_BOUND,
        remedy=remedy,
        location=location_of(facts.place(longest), facts.launches.name[longest]),
        evidence=(
            Figure("copies a step", facts.launches_per_step(launches)),
            Figure("bytes a step", facts.median_per_step(launches, moved), FigureUnit.BYTES),
            Figure(
                "the CPU is in their calls for",
                facts.median_per_step(launches, in_calls_ns),
                FigureUnit.NS,
            ),
        ),
        launches=launches,
    )


def _blocking_ns(facts: Facts, launches: Ints) -> Ints:
    """Return how long each copy's call lasts after the device has finished earlier work."""
    events, call = facts.analysis.recording.trace.events, facts.pace.call[launches]
    drained_ns = facts.launches.start_ns[launches] - facts.pace.waited_ns[launches]
    since_ns = np.maximum(events.start_ns[call], drained_ns)
    blocking_ns: Ints = np.maximum(events.end_of(call) - since_ns, 0)
    return blocking_ns


RULE = Rule(
    name="pageable_copy",
    title="Copies between the device and pageable memory",
    means="Batches are copied to the device from pageable memory, or results from the device into "
    "it: the trace calls such copies `Pageable -> Device` and `Device -> Pageable`. Or modules "
    "within the model copy tensors of theirs to the device in each call: weights, masks, tables.",
    because="The driver copies pageable memory through a small pinned buffer at a part of the "
    "bus's speed, and the CPU waits in the call until the copy is done. It launches nothing "
    "during that time.",
    remedy="`DataLoader(pin_memory=True)` and `tensor.to(device, non_blocking=True)`: the copy "
    "then overlaps with the kernels of the step before. What modules use again stays on the "
    "device: a buffer (`register_buffer`), or weights that are offloaded only if they do not fit.",
    saving="Time of the usual step that the CPU spends in the calls of these copies after the "
    "device has finished all earlier work; before that a call delays nothing. Or, if that is more, "
    "how much shorter the step would be in a replay without the waits in these calls, which use "
    "up the CPU's lead. Copies of what the CPU made of a value that it read are part of "
    "`synchronisation`: the device has nothing else to do by then. An upper bound: a pinned "
    "copy takes time too.",
    not_on_cpu="the launches ran on the CPU, where nothing is copied to a device",
    judge=_judge,
)
