"""The rule for copies to the device that its computation waits for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.rule import Candidate, Rule, count_and_time
from profiler_ext.findings.rules.pageable_copy import KEEP, OF_MODULES, is_in_module
from profiler_ext.records.events import Ints

_PINNED = "Memcpy HtoD (Pinned -> Device)"
_MIN_FRACTION = 0.03
_AHEAD = (
    "copy fewer bytes (uint8 images, converted on the device), or ahead of the step, on a "
    "torch.cuda.Stream of its own"
)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    return tuple(_candidates(facts))


def _candidates(facts: Facts) -> Iterator[Candidate]:
    copies = np.flatnonzero(facts.in_steps(facts.named(_PINNED.__eq__)))
    copies = copies[_is_in_line(facts, copies)]
    inside = is_in_module(facts)[copies]
    batches = "computation waits for the copy of a batch to the device"
    parts = ((copies[inside], OF_MODULES, KEEP), (copies[~inside], batches, _AHEAD))
    for own, summary, remedy in parts:
        paced_ns = facts.median_per_step(own, facts.critical_ns(own)) if len(own) else 0
        if paced_ns >= max(_MIN_FRACTION * facts.training.step_ns, 1):
            yield _candidate(facts, own, paced_ns, (summary, remedy))


def _is_in_line(facts: Facts, copies: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Tell which copies are on the stream that computes most: on another one they may overlap."""
    launches = facts.launches
    streams = np.stack([launches.device, launches.stream.filled(-1)])
    each, number = np.unique(streams, axis=1, return_inverse=True)
    busy_ns = np.bincount(number.ravel(), launches.duration_ns, minlength=each.shape[1])
    busy_ns -= np.bincount(
        number.ravel()[copies], launches.duration_ns[copies], minlength=each.shape[1]
    )
    most = {int(device): -1 for device in each[0].tolist()}
    for at in np.argsort(busy_ns, kind="stable").tolist():
        most[int(each[0, at])] = at
    own: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.isin(
        number.ravel()[copies], list(most.values())
    )
    return own


def _candidate(facts: Facts, copies: Ints, paced_ns: int, words: tuple[str, str]) -> Candidate:
    moved = facts.analysis.recording.trace.events.bytes_moved[facts.launches.event[copies]]
    longest = facts.longest(copies)
    return Candidate(
        summary=words[0],
        est_saving_ns=paced_ns,
        confidence=Confidence.UPPER_BOUND,
        remedy=words[1],
        location=location_of(facts.place(longest), facts.launches.name[longest]),
        evidence=(
            *count_and_time(facts, copies),
            Figure(
                "bytes a step", facts.median_per_step(copies, moved.filled(0)), FigureUnit.BYTES
            ),
        ),
        launches=copies,
    )


RULE = Rule(
    name="exposed_copy",
    title="Copies to the device that computation waits for",
    means="Copies from pinned memory are on the critical path for 3% of the step or more, on the "
    "stream that computes: the batch, or what modules copy to the device in each call.",
    because="`non_blocking=True` lets the CPU go on. On the device a copy still runs in the order "
    "of its stream, and the kernels behind it wait. Floats are four times the bytes of an "
    "image's own.",
    remedy="Copy images as bytes and convert them on the device. Copy the next batch on a "
    "`torch.cuda.Stream` of its own while this one computes (a prefetcher), with "
    "`Tensor.record_stream`. Keep on the device what modules use again (`register_buffer`, weights "
    "that fit).",
    saving="Time of these copies on the critical path. An upper bound: what is converted on the "
    "device is still copied, with fewer bytes.",
    not_on_cpu="the launches ran on the CPU, where nothing is copied to a device",
    judge=_judge,
)
