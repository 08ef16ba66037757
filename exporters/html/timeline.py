"""Timelines on the page: what each stream ran in a step, and why the device was idle.

A page has a few steps of each rank, and each a bounded number of spans: launches that are shorter
than a moment, and within the same moment, are one span with their count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from profiler_ext.exporters.html.sites import Sites
from profiler_ext.exporters.html.slices import (
    rank_number,
    selectable_ranks,
    selectable_steps,
)
from profiler_ext.records.analysis import Analysis, Place, Step
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import IdleCause

MAX_SPANS = 16_000  # on a page
MAX_SPANS_OF_STEP = 4_000
_MIN_SPANS_OF_STEP = 400
_ALL_STEPS = 5  # so few steps are all on the page; of more the slowest, the median, the fastest
_WORDS = {cause.value: cause.label for cause in IdleCause}
LineNumber = Callable[[Place], int]


@dataclass(frozen=True, slots=True)
class Spans:
    """What is drawn of the pieces of one step: of each lane in order of time."""

    lane: Ints
    start_ns: Ints
    end_ns: Ints
    busy_ns: Ints  # of all its pieces
    piece: Ints  # the longest one
    count: Ints


def spans_of(lane: Ints, start_ns: Ints, duration_ns: Ints, most: int) -> tuple[Spans, int]:
    """Return at most ``most`` spans, or a few per lane, and the moment of merged pieces in ns.

    Pieces shorter than a moment are merged with those next to them that begin in the same one.
    """
    order = np.lexsort((start_ns, lane))
    lane, start_ns, duration_ns = lane[order], start_ns[order], duration_ns[order]
    moment_ns = 0
    firsts = np.arange(len(order))
    least = 2 * len(np.unique(lane))
    while len(firsts) > max(most, least):
        moment_ns = 2 * moment_ns or max(int(np.ptp(start_ns)) // (2 * most), 1)
        firsts = _group_starts(lane, start_ns, duration_ns, moment_ns)
    return _merged(lane, start_ns, duration_ns, firsts, order), moment_ns


def _group_starts(lane: Ints, start_ns: Ints, duration_ns: Ints, moment_ns: int) -> Ints:
    """Return where each group of merged pieces begins."""
    moment = start_ns // moment_ns
    alone = duration_ns >= moment_ns
    begins = np.ones(len(lane), np.bool_)
    begins[1:] = (lane[1:] != lane[:-1]) | (moment[1:] != moment[:-1]) | alone[1:] | alone[:-1]
    starts: Ints = np.flatnonzero(begins)
    return starts


def _merged(lane: Ints, start_ns: Ints, duration_ns: Ints, firsts: Ints, order: Ints) -> Spans:
    if not len(firsts):
        return Spans(*(np.empty(0, np.int64) for _ in range(6)))
    count = np.diff(np.append(firsts, len(lane)))
    group = np.repeat(np.arange(len(firsts)), count)
    longest = np.lexsort((-duration_ns, group))[firsts]
    return Spans(
        lane[firsts],
        start_ns[firsts],
        np.maximum.reduceat(start_ns + duration_ns, firsts),
        np.add.reduceat(duration_ns, firsts),
        order[longest],
        count,
    )


def timelines(
    analyses: Sequence[Analysis], sites: Sites, line_number: LineNumber
) -> list[dict[str, Any]]:
    """Return the timelines of a page, for JSON.

    ``spans``: lane, ns since the last one's start, length, busy time, site, number of launches;
    ``idle``: the same with the number of its cause, and of the line at which it arose; ``moment``:
    launches that are shorter, and begin within the same so many ns, are one span.
    """
    shown = selectable_ranks(analyses)
    steps = [
        (analysis, of_launch, step)
        for analysis, of_launch in zip(analyses, sites.of_launch, strict=True)
        if rank_number(analysis) in shown
        for step in steps_shown(analysis)
    ]
    most = max(MAX_SPANS // max(len(steps), 1), _MIN_SPANS_OF_STEP)
    return [_timeline(*each, line_number, min(most, MAX_SPANS_OF_STEP)) for each in steps]


def steps_shown(analysis: Analysis) -> list[Step]:
    """Return the steps that a page has: all of a few, else the slowest, the median, the fastest."""
    words = selectable_steps([analysis], 1)
    steps = list({step.number: step for step in analysis.steps}.values())
    if len(steps) <= _ALL_STEPS:
        return steps
    return [step for step in steps if words.get(step.number)]


def _timeline(
    analysis: Analysis, of_launch: Ints, step: Step, line_number: LineNumber, most: int
) -> dict[str, Any]:
    launches = analysis.launches
    rows = np.flatnonzero(np.ma.filled(launches.step == step.number, False))
    lanes, names = _lanes(analysis, rows)
    spans, moment_ns = spans_of(lanes, launches.start_ns[rows], launches.duration_ns[rows], most)
    idle = _idle_rows(analysis, step)
    devices, device = np.unique(analysis.idle.device[idle], return_inverse=True)
    return {
        "rank": rank_number(analysis),
        "step": step.number,
        "of": len({each.number for each in analysis.steps}),
        "wall": step.wall_ns,
        "launches": len(rows),
        "moment": moment_ns,
        "lanes": names,
        "spans": _rows(spans, step, of_launch[rows[spans.piece]].tolist(), spans.count.tolist()),
        "devices": ["idle" if len(devices) < 2 else f"device {d}, idle" for d in devices.tolist()],
        "causes": [_WORDS.get(cause, cause) for cause in analysis.idle.cause.strings],
        "idle": _idle_spans(analysis, step, idle, device, line_number, most),
    }


def _lanes(analysis: Analysis, rows: Ints) -> tuple[Ints, list[str]]:
    """Return the lane of each launch, and the lanes' names: streams, collectives by themselves."""
    launches = analysis.launches
    device, stream = launches.device[rows], np.ma.filled(launches.stream[rows], -1)
    communicates = np.isin(rows, analysis.communication.launch)
    keys = np.stack((device, communicates, stream), axis=1)
    distinct, lane = np.unique(keys, axis=0, return_inverse=True)
    several = len(np.unique(device)) > 1
    return lane.reshape(-1), [_lane_name(key, several) for key in distinct.tolist()]


def _lane_name(key: Sequence[int], several: bool) -> str:
    device, communicates, stream = key
    what = "CPU" if stream < 0 else f"stream {stream}"
    if communicates:
        what = "collectives" if stream < 0 else f"collectives, stream {stream}"
    return f"device {device}, {what}" if several else what


def _idle_rows(analysis: Analysis, step: Step) -> Ints:
    rows: Ints = np.flatnonzero(analysis.idle.step == step.number)
    return rows


def _idle_spans(
    analysis: Analysis, step: Step, rows: Ints, lane: Ints, line_number: LineNumber, most: int
) -> list[tuple[int, ...]]:
    pieces = analysis.idle
    spans, _ = spans_of(lane, pieces.start_ns[rows], pieces.duration_ns[rows], most)
    longest = rows[spans.piece]
    lines = [line_number(pieces.places[code]) for code in pieces.cause_place[longest].tolist()]
    return _rows(spans, step, pieces.cause.codes[longest].tolist(), lines)


def _rows(spans: Spans, step: Step, *columns: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the spans as rows for JSON, cut where the step begins; each start follows the last."""
    start_ns = np.maximum(spans.start_ns - step.start_ns, 0)
    length_ns = np.maximum(spans.end_ns - step.start_ns - start_ns, 0)
    numbers = (spans.lane, np.diff(start_ns, prepend=0), length_ns, spans.busy_ns)
    return list(zip(*(each.tolist() for each in numbers), *columns, strict=True))
