"""Owns what is said of a launch: its arguments, most of them the same each time it runs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profiler_ext.exporters.launch_parts import PartColumns
from profiler_ext.exporters.launch_places import (
    distinct,
    line_text,
    module_text,
    node_text,
)
from profiler_ext.exporters.perfetto.communication import communication_times
from profiler_ext.exporters.perfetto.device_events import reported
from profiler_ext.exporters.perfetto.optional import optional
from profiler_ext.exporters.perfetto.own_arguments import NumberArgument, ColumnArgument, DictArgument, IntArgument
from profiler_ext.exporters.perfetto.rates import Rates
from profiler_ext.exporters.perfetto.shared import Shared
from profiler_ext.exporters.perfetto.texts import Argument, Texts, present
from profiler_ext.records import Analysis, Interned, Place


class LaunchArgumentColumns:
    """Answers what the slice of a launch shall say."""

    def __init__(self, analysis: Analysis, rates: Rates, texts: Texts) -> None:
        """Take what is known of launches.

        Args:
            analysis: what attribution found.
            rates: what launches achieved.
            texts: encodes what profilers told of them.
        """
        self._analysis = analysis
        self._launches = analysis.launches
        self._graphs = analysis.recording.graphs
        self._event_names = analysis.recording.trace.events.name
        self._places = analysis.places
        self._rates = rates
        self._texts = texts
        self.parts = PartColumns(analysis)

    def keys(self) -> Iterator[tuple[object, ...]]:
        """Yield for each launch what tells whether it has the constant arguments of another."""
        columns = self._launches
        interned = (columns.name, columns.kernel, columns.kind, columns.phase, columns.level)
        every = (*interned, columns.scope, columns.evidence, columns.mechanism, columns.gap)
        ops = columns.op_event.filled(-1)
        names = np.append(self._event_names.codes, -1)[ops]
        return zip(
            *(column.codes.tolist() for column in every),
            columns.graph.tolist(),
            columns.call_site.tolist(),
            names.tolist(),
            self.parts.keys(),
            strict=True,
        )

    def constant(self, row: int) -> dict[str, Argument]:
        """Return the arguments that all launches with this launch's key share."""
        return present(self._where(row) | self._what(row) | self._graph(row))

    def own(self) -> list[ColumnArgument]:
        """Return the arguments of each launch alone."""
        columns, settings = self._launches, self._analysis.recording.settings
        ranks = np.full(len(columns), settings.rank)
        first: list[NumberArgument] = [IntArgument("duration_ns", columns.duration_ns)]
        rates = self._rates.arguments()
        last: list[NumberArgument] = [
            IntArgument("step", columns.step),
            *([IntArgument("rank", ranks)] if settings.world_size > 1 else []),
            IntArgument("correlation", columns.correlation),
            IntArgument("external_id", columns.external_id),
        ]
        # What most launches say has a small number; the names of parts are many.
        for each in (*first, *rates, *last):
            self._texts.named(each.name)
        return [*first, self._shares(), *rates, *communication_times(self._analysis), *last]

    def few(self) -> list[Shared]:
        """Return the further arguments of which there are few."""
        words = self._rates.words().items()
        return [*(self._word(*each) for each in words), reported(self._analysis, self._texts)]

    def _word(self, name: str, labels: Interned) -> Shared:
        return Shared(
            labels.codes.tolist(), lambda row: self._texts.annotated(present({name: labels[row]}))
        )

    def _shares(self) -> DictArgument:
        # The number leads to the place's line, module and phase; queries.sql joins by it.
        keys = [f"{node_text(place)} #{number}" for number, place in enumerate(self._places)]
        parts = self.parts
        return DictArgument("shares_ns", keys, parts.firsts, parts.place, parts.duration_ns)

    def _what(self, row: int) -> dict[str, Argument | None]:
        columns = self._launches
        op = optional(columns.op_event, row)
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
        places = [self._places[place] for place in self.parts.of(row)]
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


def path_text(place: Place) -> str | None:
    """Return a place's whole path and line."""
    return None if place.file is None or place.line is None else f"{place.file}:{place.line}"
