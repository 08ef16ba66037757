"""Owns what is said of a launch: its arguments, most of them the same each time it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from exporters.perfetto.packets import Argument
from profiler_ext.records import Analysis, MaskedInts, Place

THE_MODEL = "(model)"


class Part(NamedTuple):
    """A part of a launch: its place, and its nanoseconds."""

    place: int
    duration_ns: int


class LaunchArguments:
    """Answers what the slice of a launch shall say."""

    def __init__(self, analysis: Analysis) -> None:
        self._launches = analysis.launches
        self._graphs = analysis.recording.graphs
        self._event_names = analysis.recording.trace.events.name
        self._places = analysis.places
        self._parts = _parts_of_launches(analysis)

    def largest_place(self, row: int) -> Place | None:
        """Return the place of a launch's largest part, ``None`` if it has no parts."""
        parts = self._parts[row]
        return self._places[parts[0].place] if parts else None

    def key(self, row: int) -> tuple[object, ...]:
        """Return what tells whether two launches have the same constant arguments."""
        columns = self._launches
        op = optional(columns.op_event, row)
        return (
            columns.name.codes[row],
            columns.kernel.codes[row],
            columns.kind.codes[row],
            columns.phase.codes[row],
            columns.level.codes[row],
            columns.evidence.codes[row],
            columns.gap.codes[row],
            optional(columns.graph, row),
            optional(columns.call_site, row),
            None if op is None else self._event_names.codes[op],
            tuple(part.place for part in self._parts[row]),
        )

    def constant(self, row: int) -> dict[str, Argument]:
        """Return the arguments that all launches with this launch's key share."""
        return present(self._where(row) | self._what(row) | self._graph(row))

    def changing(self, row: int) -> dict[str, Argument]:
        """Return the arguments of this launch alone."""
        columns = self._launches
        shares: dict[str, int] = {}
        for part in self._parts[row]:
            label = place_label(self._places[part.place])
            shares[label] = shares.get(label, 0) + part.duration_ns
        return present(
            {
                "duration_ns": int(columns.duration_ns[row]),
                "shares_ns": shares,
                "step": optional(columns.step, row),
                "correlation": optional(columns.correlation, row),
                "external_id": optional(columns.external_id, row),
            }
        )

    def _what(self, row: int) -> dict[str, Argument | None]:
        columns = self._launches
        op = optional(columns.op_event, row)
        return {
            "kind": columns.kind[row],
            "kernel": columns.kernel[row],
            "level": columns.level[row],
            "evidence": columns.evidence[row],
            "gap": columns.gap[row],
            "launched_by": None if op is None else self._event_names[op],
        }

    def _graph(self, row: int) -> dict[str, Argument | None]:
        number = optional(self._launches.graph, row)
        if number is None:
            return {}
        graph = self._graphs[number]
        return {
            "graph": graph.key,
            "compile_id": graph.compile_id,
            "call_site": optional(self._launches.call_site, row),
            "generated_code": graph.output_module,
        }

    def _where(self, row: int) -> dict[str, Argument | None]:
        places = [self._places[part.place] for part in self._parts[row]]

        def each(say: Callable[[Place], str | None]) -> list[str]:
            return list(dict.fromkeys(text for place in places if (text := say(place))))

        return {
            "phase": self._launches.phase[row],
            "source_lines": each(source_line),
            "modules": each(module_label),
            "aten_ops": each(lambda place: place.aten_op),
            "fx_nodes": each(lambda place: place.node),
            "forward_nodes": each(lambda place: place.forward_node),
            "seq_nrs": list(dict.fromkeys(p.seq_nr for p in places if p.seq_nr is not None)),
            "source_paths": each(_source_path),
        }


def optional(column: MaskedInts, row: int) -> int | None:
    """Return a value of a column, ``None`` where it is masked."""
    return None if np.ma.getmaskarray(column)[row] else int(column.data[row])


def present(arguments: Mapping[str, Argument | None]) -> dict[str, Argument]:
    """Return the arguments that say something: zero does, an empty text or list does not."""
    return {
        key: value
        for key, value in arguments.items()
        if value is not None and (isinstance(value, int) or len(value))
    }


def place_label(place: Place) -> str:
    """Return the FX node, the ATen op or the gap that a place stands for."""
    return place.node or place.aten_op or place.gap or "unknown"


def source_line(place: Place) -> str | None:
    """Return a place's line as a person reads it: ``model.py:12 h = self.up(x)``."""
    if place.file is None or place.line is None:
        return None
    short = place.file.replace("\\", "/").rpartition("/")[2]
    return f"{short}:{place.line} {place.code or ''}".rstrip()


def module_label(place: Place) -> str | None:
    """Return a place's module path; the model itself has none and gets a word."""
    return THE_MODEL if place.module == "" else place.module


def _source_path(place: Place) -> str | None:
    return None if place.file is None or place.line is None else f"{place.file}:{place.line}"


def _parts_of_launches(analysis: Analysis) -> list[tuple[Part, ...]]:
    shares = analysis.shares
    parts: list[list[Part]] = [[] for _ in range(len(analysis.launches))]
    columns: Iterable[tuple[int, int, int]] = zip(
        shares.launch.tolist(), shares.place.tolist(), shares.duration_ns.tolist(), strict=True
    )
    for launch, place, duration_ns in columns:
        parts[launch].append(Part(place, duration_ns))
    return [tuple(sorted(some, key=lambda part: -part.duration_ns)) for some in parts]
