"""The arguments of a launch's slice: attribution, and what the profiler recorded."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from profiler_ext.exporters import launch_parts
from profiler_ext.exporters.perfetto.annotations import (
    Argument,
    ColumnArgument,
    DictArgument,
    IntArgument,
    NumberArgument,
    Texts,
    present,
)
from profiler_ext.exporters.perfetto.encoding import Shared
from profiler_ext.exporters.perfetto.rates import Rates
from profiler_ext.exporters.views.between import barrier_name
from profiler_ext.kineto import launch_shapes, raw_events, recording
from profiler_ext.records.analysis import Analysis, Place
from profiler_ext.records.events import Interned, Ints, MaskedInts
from profiler_ext.rooflines.intermediates import passed_buffers

CollectiveNames = dict[str, str | None]
_SHOWN_BUFFERS = 4
_REPORTED = {
    "grid": "grid",
    "block": "block",
    "registers per thread": "registers_per_thread",
    "shared memory": "shared_memory_bytes",
    "est. achieved occupancy %": "est_occupancy_percent",
    "bytes": "bytes",
    "memory bandwidth (GB/s)": "memory_bandwidth_gb_per_s",
    "Collective name": "collective",
    "Group size": "group_size",
    "In msg nelems": "elements_in",
    "Out msg nelems": "elements_out",
    "dtype": "dtype",
}


def optional(column: MaskedInts, row: int) -> int | None:
    """Return a value of a column, ``None`` where masked."""
    value = column[row]
    return None if value is np.ma.masked else int(value)


class _Args(msgspec.Struct, gc=False):
    args: dict[str, Any] = {}


_DECODE = msgspec.json.Decoder(_Args).decode


def raw_arguments(raw: bytes) -> dict[str, Any]:
    """Return the arguments of one raw event; the slower parser is only for loose JSON."""
    try:
        return _DECODE(raw).args
    except msgspec.DecodeError:
        return raw_events.event_arguments(raw)


def reader(
    texts: Mapping[str, str], numbers: Sequence[str] = (), no_others: bool = False
) -> Callable[[bytes], Any]:
    """Return a decoder of some arguments of raw events, many times faster than decoding all.

    It returns an object with ``args`` and raises ``msgspec.DecodeError``.

    Args:
        texts: argument to attribute name; the attribute has the argument's JSON, ``b""`` if absent.
        numbers: arguments that are skipped as long as they are integers or null.
    """
    read: list[Any] = [
        (attribute, msgspec.Raw, msgspec.field(default=msgspec.Raw(b""), name=name))
        for name, attribute in texts.items()
    ]
    passed: list[Any] = [
        (f"_{at}", int | None, msgspec.field(default=None, name=name))
        for at, name in enumerate(numbers)
    ]
    args = msgspec.defstruct(
        "_Args", [*read, *passed], frozen=True, gc=False, forbid_unknown_fields=no_others
    )
    event = msgspec.defstruct("_Event", [("args", args, args())], gc=False)
    return msgspec.json.Decoder(event).decode


def collective_names(analysis: Analysis) -> dict[int, CollectiveNames]:
    """Return the collective and process group of communication launches, by launch."""
    collectives = analysis.communication
    return {
        launch: {
            "collective": collectives.collective[row] or None,
            "process_group": collectives.process_group[row] or None,
        }
        for row, launch in enumerate(collectives.launch.tolist())
    }


def communication_times(analysis: Analysis) -> list[IntArgument]:
    """Return the times of collectives as columns over all launches."""
    collectives, launches = analysis.communication, analysis.launches
    if not len(collectives.launch):
        return []
    columns = {
        "exposed_ns": collectives.exposed_ns,
        "overlapped_ns": launches.duration_ns[collectives.launch] - collectives.exposed_ns,
        "waiting_ns": collectives.waiting_ns,
        "late_ns": collectives.late_ns,
    }
    return [
        IntArgument(name, _scatter(column, collectives.launch, len(launches)))
        for name, column in columns.items()
    ]


def _scatter(column: Ints | MaskedInts, launch: Ints, launches: int) -> MaskedInts:
    values, absent = np.zeros(launches, np.int64), np.ones(launches, np.bool_)
    values[launch], absent[launch] = np.ma.getdata(column), np.ma.getmaskarray(column)
    return np.ma.MaskedArray(values, absent)


_READ = reader(_REPORTED)
# Launch shapes are in the columns of events; most kernels have no other arguments.
_READ_WITHOUT_SHAPE = reader(
    {key: name for key, name in _REPORTED.items() if key not in launch_shapes.LAUNCH_SHAPE}
)
_NOTHING_MORE = _READ_WITHOUT_SHAPE(b"{}").args


def reported(analysis: Analysis, texts: Texts) -> Shared:
    """Return the profiler's own arguments of launches, and those of communication."""
    trace = analysis.recording.trace
    positions = trace.events.position[analysis.launches.event]
    communicating = collective_names(analysis)

    def encode(row: int) -> bytes:
        raw = raw_arguments(trace.raw[int(positions[row])])
        values = {name: raw[key] for key, name in _REPORTED.items() if key in raw}
        arguments: dict[str, Argument | None] = {
            name: value if isinstance(value, int | float | str) else str(value)
            for name, value in values.items()
        }
        return texts.annotated(present(arguments | communicating.get(row, {})))

    return Shared(_keys(analysis, communicating), encode)


def _keys(analysis: Analysis, communicating: Mapping[int, CollectiveNames]) -> Iterator[Hashable]:
    trace, rows = analysis.recording.trace, analysis.launches.event
    written = recording.as_written(trace.raw).at(trace.events.position[rows])
    shapes = trace.events.launch_shape
    has_shape = [*map(bool, shapes.strings)]
    for row, (raw, shape) in enumerate(zip(written, shapes.codes[rows].tolist(), strict=True)):
        key = _key_without_shape(raw, shape) if has_shape[shape] else _key(raw)
        yield (key, *communicating[row].values()) if row in communicating else key


def _key_without_shape(raw: bytes, shape: int) -> Hashable:
    """Return a key equal for events with equal arguments; shapes are numbered."""
    try:
        args = _READ_WITHOUT_SHAPE(raw).args
    except msgspec.DecodeError:
        return raw
    return shape if args == _NOTHING_MORE else (shape, *map(bytes, msgspec.structs.astuple(args)))


def _key(raw: bytes) -> Hashable:
    """Return a key equal for events with equal arguments."""
    try:
        return tuple(map(bytes, msgspec.structs.astuple(_READ(raw).args)))
    except msgspec.DecodeError:
        return raw


class LaunchArgumentColumns:
    """The arguments of launch slices."""

    def __init__(self, analysis: Analysis, rates: Rates, texts: Texts) -> None:
        self._analysis = analysis
        self._launches = analysis.launches
        self._graphs = analysis.recording.graphs
        self._event_names = analysis.recording.trace.events.name
        self._places = analysis.places
        self._rates = rates
        self._texts = texts
        self.parts = launch_parts.PartColumns(analysis)
        self._not_fused = _not_fused(analysis)

    def keys(self) -> Iterator[tuple[object, ...]]:
        """Yield for each launch a key of its constant arguments."""
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
        """Return the arguments shared by all launches of a launch's key."""
        columns = self._launches
        op = optional(columns.op_event, row)
        what = {
            "kind": columns.kind[row],
            "scope": columns.scope[row],
            "kernel": columns.kernel[row],
            "level": columns.level[row],
            "evidence": columns.evidence[row],
            "mechanism": columns.mechanism[row],
            "gap": columns.gap[row],
            "launched_by": None if op is None else self._event_names[op],
        }
        return present(self._where(row) | what | self._graph(row))

    def own(self) -> list[ColumnArgument]:
        """Return the arguments that vary by launch."""
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
        keys = [
            f"{launch_parts.node_text(place)} #{number}"
            for number, place in enumerate(self._places)
        ]
        parts = self.parts
        shares = DictArgument("shares_ns", keys, parts.firsts, parts.place, parts.duration_ns)
        return [*first, shares, *rates, *communication_times(self._analysis), *last]

    def few(self) -> list[Shared]:
        """Return further arguments, of few distinct values."""
        texts = self._rates.texts().items()
        return [*(self._word(*each) for each in texts), reported(self._analysis, self._texts)]

    def _word(self, name: str, labels: Interned) -> Shared:
        return Shared(
            labels.codes.tolist(), lambda row: self._texts.annotated(present({name: labels[row]}))
        )

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
            "not_fused": self._not_fused.get((number, optional(self._launches.call_site, row))),
        }

    def _where(self, row: int) -> dict[str, Argument | None]:
        places = [self._places[place] for place in self.parts.of(row)]
        seq_nrs = (place.seq_nr for place in places if place.seq_nr is not None)
        return {
            "phase": self._launches.phase[row],
            "source_lines": launch_parts.distinct(places, launch_parts.line_text),
            "modules": launch_parts.distinct(places, launch_parts.module_text),
            "aten_ops": launch_parts.distinct(places, lambda place: place.aten_op),
            "fx_nodes": launch_parts.distinct(places, lambda place: place.node),
            "forward_nodes": launch_parts.distinct(places, lambda place: place.forward_node),
            "seq_nrs": list(dict.fromkeys(seq_nrs)),
            "source_paths": launch_parts.distinct(places, path_text),
        }


def _not_fused(analysis: Analysis) -> Mapping[tuple[int, int | None], list[str]]:
    """Return with which kernels each call site exchanges its largest buffers, and why."""
    texts: dict[tuple[int, int | None], list[str]] = {}
    for each in passed_buffers(analysis):
        size = f"{each.passed.read_bytes / 1e6:,.2f} MB"
        why = barrier_name(each.barrier, each.reason)
        for side, other, does in (
            (each.writer, each.reader, f"stores {size} for"),
            (each.reader, each.writer, f"loads {size} of"),
        ):
            own = texts.setdefault((each.graph, side.site.ordinal), [])
            if len(own) < _SHOWN_BUFFERS:
                own.append(f"{does} {other.site.kernel}: {why}")
    return texts


def path_text(place: Place) -> str | None:
    """Return a place's full path and line."""
    return None if place.file is None or place.line is None else f"{place.file}:{place.line}"
