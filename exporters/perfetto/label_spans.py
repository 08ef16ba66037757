"""Owns the lanes beneath the launches: launches in a row of one phase, module or source line.

A launch stands in a lane by its largest part. Modules nest as the module tree does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from profiler_ext.exporters.launch_places import THE_MODEL, module_text, position_text
from profiler_ext.exporters.perfetto.arguments import LaunchArguments, path_text, present
from profiler_ext.exporters.perfetto.lanes import FreeLanes, Span, span_with
from profiler_ext.exporters.perfetto.packets import Argument, Constant, PacketWriter
from profiler_ext.records import Launches, Phase, Place

PHASE, MODULE, SOURCE_LINE = "phase", "module", "source line"
LANES = (PHASE, MODULE, SOURCE_LINE)
# What autograd runs between the kernels of a module's backward does not end the span of a module.
_PASS = {Phase.RECOMPUTE: Phase.BACKWARD, Phase.GRADIENT_ACCUMULATION: Phase.BACKWARD}

_Label = tuple[str | None, str, int | None]


class LabelSpans:
    """Makes the spans of a lane: launches in a row with one label are one span."""

    def __init__(
        self, writer: PacketWriter, launches: Launches, arguments: LaunchArguments
    ) -> None:
        """Take what is labelled.

        Args:
            writer: encodes the constant parts.
            launches: the launches.
            arguments: what each shall say.
        """
        self._writer = writer
        self._launches = launches
        self._arguments = arguments
        self._steps: list[int | None] = launches.step.tolist()
        self._phase_codes: list[int] = launches.phase.codes.tolist()
        self._constants: dict[tuple[object, ...], Constant] = {}

    def of(self, lane: str, rows: Sequence[int]) -> Iterator[Span]:
        """Return the spans of a lane.

        Args:
            lane: one of ``LANES``.
            rows: rows of ``Launches`` in order of start, of which no two overlap.

        Returns:
            One span for each stretch of one label within a step and a phase; what has no label ends
            it. A module's span is followed by those of the modules within it.
        """
        if lane == MODULE:
            return self._modules(rows, depth=1)
        return self._labelled(lane, rows)

    def _labelled(self, lane: str, rows: Sequence[int]) -> Iterator[Span]:
        label = self._label(lane)
        for stretch in _stretches(rows, lambda row: (label(row), *self._phase_and_step(row))):
            text = label(stretch[0])
            if text is not None:
                yield self._span(lane, text, stretch, self._about(lane, stretch[0]))

    def _modules(self, rows: Sequence[int], depth: int) -> Iterator[Span]:
        for stretch in _stretches(
            rows, lambda row: (self._prefix(row, depth), *self._pass_and_step(row))
        ):
            path = self._prefix(stretch[0], depth)
            if path is not None:
                yield self._span(MODULE, path, stretch, {})
                yield from self._modules(stretch, depth + 1)

    def _label(self, lane: str) -> Callable[[int], str | None]:
        if lane == PHASE:
            return self._phase
        return lambda row: _text_of(self._arguments.largest_place(row), position_text)

    def _prefix(self, row: int, depth: int) -> str | None:
        path = _text_of(self._arguments.largest_place(row), module_text)
        if path is None or path == THE_MODEL:
            return path if depth == 1 else None
        names = path.split(".")
        return ".".join(names[:depth]) if depth <= len(names) else None

    def _phase(self, row: int) -> str:
        return self._launches.phase.strings[self._phase_codes[row]]

    def _phase_and_step(self, row: int) -> tuple[str, int | None]:
        return self._phase(row), self._steps[row]

    def _pass_and_step(self, row: int) -> tuple[str, int | None]:
        phase = Phase(self._phase(row))
        return _PASS.get(phase, phase), self._steps[row]

    def _about(self, lane: str, row: int) -> dict[str, Argument]:
        place = self._arguments.largest_place(row)
        if lane == PHASE or place is None:
            return {}
        return present({"code": place.code, "function": place.function, "path": path_text(place)})

    def _span(self, lane: str, text: str, rows: Sequence[int], about: dict[str, Argument]) -> Span:
        starts, durations = self._launches.start_ns[rows], self._launches.duration_ns[rows]
        return span_with(
            int(starts.min()),
            int((starts + durations).max()),
            self._constant(text, lane, about),
            {"launches": len(rows), "launch_time_ns": int(durations.sum())},
        )

    def _constant(self, text: str, lane: str, about: dict[str, Argument]) -> Constant:
        key = (text, lane, *about.items())
        if key not in self._constants:
            self._constants[key] = self._writer.constant(text, lane, about)
        return self._constants[key]


def apart(launches: Launches, rows: Sequence[int], most: int) -> list[list[int]]:
    """Give each launch the first list in which it overlaps no other.

    Args:
        launches: the launches.
        rows: rows in order of start.
        most: so many lists at most; a launch that would need a further one is in none.

    Returns:
        The lists, each in order of start; one, unless launches overlap.
    """
    lists: list[list[int]] = []
    free = FreeLanes()
    starts_ns = launches.start_ns[rows]
    ends_ns = starts_ns + launches.duration_ns[rows]
    if len(rows) and (ends_ns[:-1] <= starts_ns[1:]).all():
        return [list(rows)]
    for row, start_ns, end_ns in zip(rows, starts_ns.tolist(), ends_ns.tolist(), strict=True):
        lane = free.take(start_ns, end_ns)
        if lane == len(lists) < most:
            lists.append([])
        if lane < most:
            lists[lane].append(row)
    return lists


def _stretches(rows: Sequence[int], key: Callable[[int], _Label]) -> Iterator[list[int]]:
    return (list(stretch) for _, stretch in groupby(rows, key))


def _text_of(place: Place | None, say: Callable[[Place], str | None]) -> str | None:
    return None if place is None else say(place)
