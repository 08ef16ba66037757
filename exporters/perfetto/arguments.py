"""Owns what is said of a launch: its arguments, most of them the same each time it runs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from profiler_ext.exporters.launch_places import (
    distinct,
    line_text,
    module_text,
    node_text,
    parts_of_launches,
)
from profiler_ext.exporters.perfetto.communication import CommunicationArguments
from profiler_ext.exporters.perfetto.device_events import DeviceEvents
from profiler_ext.exporters.perfetto.packets import Argument
from profiler_ext.exporters.perfetto.rates import Rates
from profiler_ext.records import Analysis, Launches, MaskedInts, Place


class LaunchArguments:
    """Answers what the slice of a launch shall say."""

    def __init__(self, analysis: Analysis, rates: Rates) -> None:
        """Take what is known of launches.

        Args:
            analysis: what attribution found.
            rates: what launches achieved.
        """
        self._launches = analysis.launches
        self._graphs = analysis.recording.graphs
        self._event_names = analysis.recording.trace.events.name
        self._places = analysis.places
        self._parts = parts_of_launches(analysis)
        self._rates = rates
        self._device_events = DeviceEvents(analysis)
        self._communication = CommunicationArguments(analysis)
        self._read(analysis.launches)
        settings = analysis.recording.settings
        self._rank = settings.rank if settings.world_size > 1 else None

    def _read(self, launches: Launches) -> None:
        # Lists: a million rows are read one by one; an absent value is ``None`` in them.
        self._op: list[int | None] = launches.op_event.tolist()
        self._graph_of: list[int | None] = launches.graph.tolist()
        self._site: list[int | None] = launches.call_site.tolist()
        self._step: list[int | None] = launches.step.tolist()
        self._correlation: list[int | None] = launches.correlation.tolist()
        self._external_id: list[int | None] = launches.external_id.tolist()
        self._durations: list[int] = launches.duration_ns.tolist()
        interned = (launches.name, launches.kernel, launches.kind, launches.phase, launches.level)
        every = (*interned, launches.scope, launches.evidence, launches.mechanism, launches.gap)
        self._codes: list[list[int]] = [column.codes.tolist() for column in every]

    def largest_place(self, row: int) -> Place | None:
        """Return the place of a launch's largest part, ``None`` if it has no parts."""
        parts = self._parts[row]
        return self._places[parts[0].place] if parts else None

    def key(self, row: int) -> tuple[object, ...]:
        """Return what tells whether two launches have the same constant arguments."""
        op = self._op[row]
        return (
            *(codes[row] for codes in self._codes),
            self._graph_of[row],
            self._site[row],
            None if op is None else self._event_names.codes[op],
            tuple(part.place for part in self._parts[row]),
        )

    def constant(self, row: int) -> dict[str, Argument]:
        """Return the arguments that all launches with this launch's key share."""
        return present(self._where(row) | self._what(row) | self._graph(row))

    def changing(self, row: int) -> dict[str, Argument]:
        """Return the arguments of this launch alone."""
        return present(
            {
                "duration_ns": self._durations[row],
                "shares_ns": self._shares(row),
                **self._rates.arguments(row),
                **self._device_events.arguments(row),
                **self._communication.arguments(row),
                "step": self._step[row],
                "rank": self._rank,
                "correlation": self._correlation[row],
                "external_id": self._external_id[row],
            }
        )

    def _shares(self, row: int) -> dict[str, int]:
        # The number leads to the place's line, module and phase; queries.sql joins by it.
        return {
            f"{node_text(self._places[part.place])} #{part.place}": part.duration_ns
            for part in self._parts[row]
        }

    def _what(self, row: int) -> dict[str, Argument | None]:
        columns = self._launches
        op = self._op[row]
        return {
            "kind": columns.kind[row],
            "scope": columns.scope[row],
            "kernel": columns.kernel[row],
            "level": columns.level[row],
            "evidence": columns.evidence[row],
            "mechanism": columns.mechanism[row],
            "gap": columns.gap[row],
            "launched_by": None if op is None else self._event_names[op],
        }

    def _graph(self, row: int) -> dict[str, Argument | None]:
        number = self._graph_of[row]
        if number is None:
            return {}
        graph = self._graphs[number]
        return {
            "graph": graph.key,
            "compile_id": graph.compile_id,
            "call_site": self._site[row],
            "generated_code": graph.output_module,
        }

    def _where(self, row: int) -> dict[str, Argument | None]:
        places = [self._places[part.place] for part in self._parts[row]]
        seq_nrs = (place.seq_nr for place in places if place.seq_nr is not None)
        return {
            "phase": self._launches.phase[row],
            "source_lines": distinct(places, line_text),
            "modules": distinct(places, module_text),
            "aten_ops": distinct(places, lambda place: place.aten_op),
            "fx_nodes": distinct(places, lambda place: place.node),
            "forward_nodes": distinct(places, lambda place: place.forward_node),
            "seq_nrs": list(dict.fromkeys(seq_nrs)),
            "source_paths": distinct(places, path_text),
        }


def optional(column: MaskedInts, row: int) -> int | None:
    """Return a value of a column, ``None`` where it is masked.

    Args:
        column: the column.
        row: one of its rows.
    """
    return None if np.ma.getmaskarray(column)[row] else int(column.data[row])


def present(arguments: Mapping[str, Argument | None]) -> dict[str, Argument]:
    """Return the arguments that say something: zero does, an empty text or list does not."""
    return {
        key: value
        for key, value in arguments.items()
        if value is not None and (isinstance(value, int | float) or len(value))
    }


def path_text(place: Place) -> str | None:
    """Return a place's whole path and line."""
    return None if place.file is None or place.line is None else f"{place.file}:{place.line}"
