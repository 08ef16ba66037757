"""Owns the idle time by where the CPU was: each idle span, cut by the lines of the program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from profiler_ext.attribution.cpu_places import CpuPlaces, CutSpans
from profiler_ext.attribution.idle import DeviceIdle, activities, largest_spans
from profiler_ext.attribution.trace.nesting import Nesting
from profiler_ext.records import Events, IdleSpan, IdleTime, Place, Step


class IdleLines:
    """Tells where the CPU was, and what it did, while devices ran nothing."""

    def __init__(
        self, events: Events, nesting: Nesting, places: CpuPlaces, steps: Sequence[Step]
    ) -> None:
        """Take what is known.

        Args:
            events: the trace's events.
            nesting: which of them stands in which.
            places: where the CPU was.
            steps: the profiled steps.
        """
        self._events, self._nesting, self._places, self._steps = events, nesting, places, steps

    def times(self, idle: DeviceIdle) -> Iterator[IdleTime]:
        """Yield all idle time of a device by step, place, and what the CPU did.

        Args:
            idle: when the device ran nothing.
        """
        cut = self._places.cut(idle.start_ns, idle.duration_ns)
        did = activities(self._events, self._nesting, cut.start_ns, cut.duration_ns)
        spans: dict[tuple[int, int, str | None], set[int]] = {}
        sums: dict[tuple[int, int, str | None], int] = {}
        columns = (idle.step[cut.span], cut.place, cut.span, cut.duration_ns)
        rows = zip(*(column.tolist() for column in columns), did, strict=True)
        for step, place, span, duration_ns, activity in rows:
            key = (step, place, activity)
            sums[key] = sums.get(key, 0) + duration_ns
            spans.setdefault(key, set()).add(span)
        for key, duration_ns in sums.items():
            number, place = self._steps[key[0]].number, self._places.places[key[1]]
            yield IdleTime(number, idle.device, place, key[2], duration_ns, len(spans[key]))

    def largest(self, idle: DeviceIdle) -> Iterator[IdleSpan]:
        """Yield the largest idle spans of each step.

        Args:
            idle: when the device ran nothing.
        """
        rows = largest_spans(idle)
        start, duration = idle.start_ns[rows], idle.duration_ns[rows]
        did = activities(self._events, self._nesting, start, duration)
        most = _most_of_each(self._places.cut(start, duration), self._places.places)
        columns = (idle.step[rows].tolist(), start.tolist(), duration.tolist())
        for at, (step, start_ns, duration_ns) in enumerate(zip(*columns, strict=True)):
            number, place = self._steps[step].number, most[at]
            line = (place.file, place.line, place.code)
            yield IdleSpan(number, idle.device, start_ns, duration_ns, did[at], *line)


def find_idle(
    lines: IdleLines, idle: Sequence[DeviceIdle]
) -> tuple[tuple[IdleSpan, ...], tuple[IdleTime, ...]]:
    """Return the largest idle spans of each step and device, and all idle time by place.

    Args:
        lines: tells where the CPU was.
        idle: when each device ran nothing.

    Returns:
        Both with the largest first.
    """
    spans = [span for device in idle for span in lines.largest(device)]
    times = [time for device in idle for time in lines.times(device)]
    return (
        tuple(sorted(spans, key=lambda span: (-span.duration_ns, span.start_ns, span.device))),
        tuple(sorted(times, key=lambda time: -time.duration_ns)),
    )


def _most_of_each(cut: CutSpans, places: Sequence[Place]) -> dict[int, Place]:
    """Return for each span the place that has most of it; of equal ones the first."""
    sums: dict[int, dict[int, int]] = {}
    rows = zip(cut.span.tolist(), cut.place.tolist(), cut.duration_ns.tolist(), strict=True)
    for span, place, duration_ns in rows:
        own = sums.setdefault(span, {})
        own[place] = own.get(place, 0) + duration_ns
    return {span: places[max(own, key=own.__getitem__)] for span, own in sums.items()}
