"""The SQL for traces, and its data: places and rooflines, each once on a track of its own.

Launches refer to places by number, and slices of lanes to roofline texts that are sent once, so
that queries are exact and the trace stays small.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.resources import files
from typing import Any, TypeVar

import numpy as np

from profiler_ext.exporters.launch_parts import module_text, node_text
from profiler_ext.exporters.perfetto.annotations import Argument, present
from profiler_ext.exporters.perfetto.packets import PacketWriter, listed
from profiler_ext.exporters.perfetto.tracks import Tracks, internal_group
from profiler_ext.exporters.views.formatting import time_text
from profiler_ext.exporters.views.rooflines import work_text
from profiler_ext.records.analysis import Analysis, Place
from profiler_ext.records.events import Codes, Ints
from profiler_ext.records.share_sums import KeyedShares, codes_of, kernel_names, profiled_shares
from profiler_ext.rooflines.compute_units import Bound
from profiler_ext.rooflines.peaks import Peak
from profiler_ext.rooflines.rooflines import rooflines
from profiler_ext.rooflines.sums import PartSums, RooflineSums, part_sums

PLACE = "place"
_PLACES_TRACK = "places"
ROOFLINE = "roofline"
_ROOFLINES_TRACK, _ROOFLINES_RANK = "rooflines", 1
Row = Mapping[str, Any]
Label = TypeVar("Label", bound=Hashable)
_NamedArguments = tuple[str, dict[str, Argument | None]]


def queries() -> str:
    """Return the SQL that creates the tables and views of docs/perfetto.md.

    Run it once in a trace processor (or the viewer's query page), then select from ``launch``,
    ``launch_share``, ``place``, ``time_by_line``, ``time_by_module``, ``time_by_phase``,
    ``time_by_kernel``, ``idle_by_cause`` and ``roofline``.
    """
    return files(__name__.rpartition(".")[0]).joinpath("queries.sql").read_text(encoding="utf-8")


def draw_places(writer: PacketWriter, tracks: Tracks, analysis: Analysis, at_ns: int) -> None:
    """Put every place on one track, without duration.

    The viewer lists what a search finds by time, so ``at_ns`` should be behind all launches.
    """
    settings = analysis.recording.settings
    rank = settings.rank if settings.world_size > 1 else None
    rows = (
        present({"place": number, "rank": rank, **_place_arguments(place)})
        for number, place in enumerate(analysis.places)
    )
    slices = listed(
        (at_ns, at_ns, writer.constant(node_text(place), PLACE, arguments))
        for place, arguments in zip(analysis.places, rows, strict=True)
    )
    tracks.draw(_PLACES_TRACK, internal_group(tracks, settings), 0, slices)


def _place_arguments(place: Place) -> dict[str, Argument | None]:
    return {
        "node": place.node,
        "aten_op": place.aten_op,
        "phase": place.phase,
        "forward_node": place.forward_node,
        "file": place.file,
        "line": place.line,
        "function": place.function,
        "code": place.code,
        "user_file": place.user_file,
        "user_line": place.user_line,
        "caller_file": place.caller_file,
        "caller_line": place.caller_line,
        "module": module_text(place),
        "module_class": place.module_class,
        "mechanism": place.mechanism,
        "gap": place.gap,
    }


class RooflineTotals:
    """Sums rooflines over the profiled steps."""

    def __init__(self, analysis: Analysis, peaks: Mapping[str, Peak]) -> None:
        self._analysis = analysis
        self._totals = rooflines(analysis, peaks)
        self._shares = profiled_shares(analysis)

    @cached_property
    def of_lines(self) -> dict[tuple[str, int | None], Row]:
        """Columns of the tables by file and line, for lines with work or a roofline."""
        places = self._analysis.places
        return self.of_places(
            [None if each.file is None else (each.file, each.line) for each in places]
        )

    @cached_property
    def of_kernels(self) -> dict[tuple[str, str, str], Row]:
        """The same by kernel, device name and kind."""
        codes, names = kernel_names(self._analysis)
        return self._rows(names, self._sums(codes[self._analysis.shares.launch], len(names)))

    def of_places(self, labels: Sequence[Label | None]) -> dict[Label, Row]:
        """Return the same by other labels of places."""
        return self._rows(labels, self._of_places)

    def texts(self, rows: Mapping[Label, Row]) -> dict[Label, str]:
        """Return rows as text, without empty ones."""
        statements = {label: _roofline_label(row, self._steps) for label, row in rows.items()}
        return {label: words for label, words in statements.items() if words}

    @cached_property
    def _steps(self) -> str:
        steps = len(self._analysis.steps)
        return "the profiled step" if steps == 1 else f"the {steps} profiled steps"

    @cached_property
    def _of_places(self) -> PartSums:
        return self._sums(self._analysis.shares.place, len(self._analysis.places))

    def _sums(self, code_of_share: Ints | Codes, codes: int) -> PartSums:
        key = code_of_share[self._shares].astype(np.int64, copy=False)
        return part_sums(KeyedShares(self._analysis, self._shares, key, codes), self._totals)

    def _rows(self, labels: Sequence[Label | None], sums: PartSums) -> dict[Label, Row]:
        codes, known = codes_of(labels)
        rows = zip(known, _rows_of(sums.by(codes, len(known)).summed()), strict=True)
        return {label: row for label, row in rows if present(row)}


def _rows_of(sums: RooflineSums) -> Iterator[Row]:
    """Yield sums by the tables' column names; a DataFrame would need pandas."""
    columns: dict[str, Sequence[Any]] = {
        "est_bytes": sums.bytes.tolist(),
        "est_flops": sums.flops.tolist(),
        "est_gb_per_s": sums.gb_per_s.tolist(),
        "est_tflop_per_s": sums.tflop_per_s.tolist(),
        "est_attainable_tflop_per_s": sums.attainable_tflop_per_s.tolist(),
        "est_peak_fraction": sums.peak_fraction.tolist(),
        "unit": [sums.unit[row] or None for row in range(len(sums.unit.codes))],
        "bound": [sums.bound[row] or None for row in range(len(sums.bound.codes))],
        "roofline_ns": sums.roofline_ns.tolist(),
        "could_save_ns": sums.could_save_ns.tolist(),
    }
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def _roofline_label(row: Row, steps: str) -> str:
    saved = row["could_save_ns"]
    could = f"max saving {time_text(saved)}" if saved else ""
    parts = [each for each in (_bound_label(row), could, work_text(row)) if each]
    return f"over {steps}: {'; '.join(parts)}" if parts else ""


def _bound_label(row: Row) -> str:
    if row["bound"] is None:
        return ""
    bound, fraction = Bound(row["bound"]), row["est_peak_fraction"]
    has_fraction = bound in (Bound.MEMORY, Bound.COMPUTE) and fraction is not None
    return f"bound by {bound.label}" + (
        f", {100 * fraction:.0f}% of its roofline" if has_fraction else ""
    )


def draw_rooflines(
    writer: PacketWriter, tracks: Tracks, analysis: Analysis, totals: RooflineTotals, at_ns: int
) -> None:
    """Put the roofline of every line, module and kernel on one track, without duration."""
    settings = analysis.recording.settings
    rank = settings.rank if settings.world_size > 1 else None
    slices = listed(
        (at_ns, at_ns, writer.constant(name, ROOFLINE, present({"rank": rank, **statements})))
        for name, statements in _roofline_arguments(analysis, totals)
    )
    tracks.draw(_ROOFLINES_TRACK, internal_group(tracks, settings), _ROOFLINES_RANK, slices)


def _roofline_arguments(analysis: Analysis, totals: RooflineTotals) -> Iterator[_NamedArguments]:
    for (file, line), row in totals.of_lines.items():
        yield f"{file}:{line}", {"of": "line", "file": file, "line": line, **row}
    for module, row in totals.of_places([*map(module_text, analysis.places)]).items():
        yield module, {"of": "module", "module": module, **row}
    for (kernel, name, kind), row in totals.of_kernels.items():
        yield kernel, {"of": "kernel", "kernel": kernel, "name": name, "kind": kind, **row}
