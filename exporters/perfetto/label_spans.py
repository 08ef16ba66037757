"""The lanes below the launches: consecutive launches of one phase, module or source line.

A launch's phase is its own; its module and line are those of its largest part. Modules nest as the
module tree does, and recompute and gradient accumulation nest in the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from profiler_ext.exporters.launch_parts import THE_MODEL, line_text, position_text
from profiler_ext.exporters.perfetto.annotations import Argument, IntArgument, present
from profiler_ext.exporters.perfetto.arguments import path_text
from profiler_ext.exporters.perfetto.encoding import ByteDictionary
from profiler_ext.exporters.perfetto.packets import PacketWriter, Slices
from profiler_ext.exporters.perfetto.queries import ROOFLINE, RooflineTotals
from profiler_ext.exporters.perfetto.tracks import FreeLanes
from profiler_ext.exporters.views.modules import parents
from profiler_ext.records.analysis import Analysis, Launches, Place
from profiler_ext.records.events import Ints
from profiler_ext.records.share_sums import codes_of
from profiler_ext.records.vocabulary import Phase

PHASE, MODULE, SOURCE_LINE = "phase", "module", "source line"
LANES = (PHASE, MODULE, SOURCE_LINE)
_NOTHING = -1
_MAX_LINE_CHARS = 100
# Recompute and gradient accumulation within a module's backward do not end its span.
_PASS = {Phase.RECOMPUTE: Phase.BACKWARD, Phase.GRADIENT_ACCUMULATION: Phase.BACKWARD}


class LabelSpans:
    """Makes the slices of a lane: consecutive launches with one label are one slice."""

    def __init__(
        self, writer: PacketWriter, analysis: Analysis, largest: Ints, of_steps: RooflineTotals
    ) -> None:
        self._writer, self._launches, self._places = writer, analysis.launches, analysis.places
        self._largest = largest
        self._constants: list[bytes] = []
        self._known: dict[tuple[object, ...], int] = {}
        phases = analysis.launches.phase
        passes = {text: _PASS.get(Phase(text), Phase(text)) for text in phases.strings if text}
        self._phases = codes_of(phases.strings)[0][phases.codes]
        self._passes = codes_of(map(passes.get, phases.strings))[0][phases.codes]
        is_inner = [bool(text) and passes[text] != text for text in phases.strings]
        self._is_inner = np.array(is_inner, np.bool_)[phases.codes]
        steps = analysis.launches.step
        numbers = np.unique(steps.data, return_inverse=True)[1]
        self._steps = np.where(np.ma.getmaskarray(steps), _NOTHING, numbers)
        self._positions = [position_text(place) for place in analysis.places]
        modules = (place.module for place in analysis.places)
        self._paths = [[] if path is None else parents(path)[1:] or [THE_MODEL] for path in modules]
        self._depths = max(map(len, self._paths), default=1) or 1
        self._of_lines = of_steps.texts(of_steps.of_lines)
        self._of_modules: dict[str, str] = {}
        for depth in range(self._depths):
            self._of_modules |= of_steps.texts(of_steps.of_places(self._at_depth(depth)))

    def of(self, lane: str, rows: Ints) -> Slices:
        """Return the slices of a lane, one per run of one label within a step and phase.

        Launches without a label end a run. ``rows`` are launches in start order that do not
        overlap.
        """
        if lane == MODULE:
            return self._drawn(lane, rows, self._module_runs(rows))
        if lane == PHASE:
            return self._drawn(lane, rows, self._phase_runs(rows))
        lines = self._of_places(self._positions, rows)
        return self._drawn(lane, rows, [_label_runs(lines, self._phases[rows], self._steps[rows])])

    def _phase_runs(self, rows: Ints) -> Iterator[_LabelRuns]:
        runs = _label_runs(self._passes[rows], self._steps[rows])
        yield runs
        inner = np.where(self._is_inner[rows], self._phases[rows], _NOTHING)
        yield _label_runs(inner, np.repeat(np.arange(len(runs.firsts)), runs.counts))

    def _module_runs(self, rows: Ints) -> Iterator[_LabelRuns]:
        within: tuple[Ints, ...] = (self._passes[rows], self._steps[rows])
        for depth in range(self._depths):
            runs = _label_runs(self._of_places(self._at_depth(depth), rows), *within)
            yield runs
            # What is within a module does not go on where the module does not.
            within = (np.repeat(np.arange(len(runs.firsts)), runs.counts),)

    def _at_depth(self, depth: int) -> list[str | None]:
        return [path[depth] if depth < len(path) else None for path in self._paths]

    def _of_places(self, labels: Sequence[str | None], rows: Ints) -> Ints:
        codes = np.append(codes_of(labels)[0], _NOTHING)
        return codes[self._largest[rows]]

    def _drawn(self, lane: str, rows: Ints, runs: Iterable[_LabelRuns]) -> Slices:
        starts_ns, durations_ns = self._launches.start_ns[rows], self._launches.duration_ns[rows]
        drawn = [
            (
                np.minimum.reduceat(starts_ns, each.firsts)[each.labelled],
                np.maximum.reduceat(starts_ns + durations_ns, each.firsts)[each.labelled],
                np.add.reduceat(durations_ns, each.firsts)[each.labelled],
                each.counts[each.labelled],
                each.firsts[each.labelled],
                np.full(int(each.labelled.sum()), depth),
            )
            for depth, each in enumerate(runs)
        ]
        columns = [np.concatenate(each) for each in zip(*drawn, strict=True)]
        # Of slices with the same times the outer one comes first.
        order = np.lexsort((columns[5], columns[4]))
        start_ns, end_ns, busy_ns, counts, firsts, depths = (column[order] for column in columns)
        codes = self._codes(lane, rows[firsts], depths)
        own = (IntArgument("launches", counts), IntArgument("launch_time_ns", busy_ns))
        return Slices(
            start_ns, end_ns, ByteDictionary(self._constants), codes, np.arange(len(codes)), own
        )

    def _codes(self, lane: str, rows: Ints, depths: Ints) -> Ints:
        """Return the constant of each slice; most repeat."""
        at = (self._phases if lane == PHASE else self._largest)[rows]
        _, firsts, kinds = np.unique(
            at * (depths.max(initial=0) + 1) + depths, return_index=True, return_inverse=True
        )
        codes = np.empty(len(firsts), np.int64)
        for kind in np.argsort(firsts).tolist():
            first = firsts[kind]
            codes[kind] = self._code(lane, int(at[first]), int(rows[first]), int(depths[first]))
        return codes[kinds]

    def _code(self, lane: str, at: int, row: int, depth: int) -> int:
        known = self._known.get((lane, at, depth))
        if known is None:
            text, about = self._name_and_arguments(lane, row, depth)
            key = (lane, text, *about.items())
            known = self._known.get(key)
            if known is None:
                known = self._known[key] = len(self._constants)
                self._constants.append(self._writer.constant(text, lane, about))
            self._known[lane, at, depth] = known
        return known

    def _name_and_arguments(
        self, lane: str, row: int, depth: int
    ) -> tuple[str, dict[str, Argument]]:
        if lane == PHASE:
            phase = self._launches.phase[row]
            return phase if depth else _PASS.get(Phase(phase), phase), {}
        place = self._places[self._largest[row]]
        if lane == MODULE:
            path = self._paths[self._largest[row]][depth]
            return path, present({ROOFLINE: self._of_modules.get(path)})
        about = {"code": place.code, "function": place.function, "path": path_text(place)}
        about[ROOFLINE] = self._of_lines.get((place.file, place.line)) if place.file else None
        return _line_name(place), present(about)


def _line_name(place: Place) -> str:
    """Return a line with its code, else its function.

    The viewer colours a slice by its name without numbers, so the position alone would give all
    lines of a file one colour.
    """
    text = line_text(place) or ""
    if not place.code and place.function:
        text = f"{text}  in {place.function}"
    return text if len(text) <= _MAX_LINE_CHARS else f"{text[: _MAX_LINE_CHARS - 1]}…"


class _LabelRuns(NamedTuple):
    """Runs of launches with one label: first row, count, whether labelled."""

    firsts: Ints
    counts: Ints
    labelled: npt.NDArray[np.bool_]


def _label_runs(labels: Ints, *within: Ints) -> _LabelRuns:
    changes = np.ones(len(labels), np.bool_)
    changes[1:] = False
    for column in (labels, *within):
        changes[1:] |= column[1:] != column[:-1]
    firsts = np.flatnonzero(changes)
    counts = np.diff(np.append(firsts, len(labels)))
    return _LabelRuns(firsts, counts, labels[firsts] != _NOTHING)


def split_overlapping(launches: Launches, rows: Ints, most: int) -> list[Ints]:
    """Assign launches to at most ``most`` lists without overlap; the rest are left out."""
    lists: list[list[int]] = []
    free = FreeLanes()
    starts_ns = launches.start_ns[rows]
    ends_ns = starts_ns + launches.duration_ns[rows]
    if len(rows) and (ends_ns[:-1] <= starts_ns[1:]).all():
        return [rows]
    for row, start_ns, end_ns in zip(
        rows.tolist(), starts_ns.tolist(), ends_ns.tolist(), strict=True
    ):
        lane = free.take(start_ns, end_ns)
        if lane == len(lists) < most:
            lists.append([])
        if lane < most:
            lists[lane].append(row)
    return [np.array(each, np.int64) for each in lists]
