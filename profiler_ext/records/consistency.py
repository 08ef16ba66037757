"""Checks what must hold between the fields of records that were read from a file.

Decoding checks the types of single fields. A record from another process is not trusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from profiler_ext.records import recording
from profiler_ext.records.provenance import Autotuned, CallSite, FxNode, GraphInstance, Provenance

if TYPE_CHECKING:
    from profiler_ext.records.compiles import Compilation
    from profiler_ext.records.recording import Settings


_MAX_VALUE = 2**62  # what is added to a time, or to a difference of two, stays within 64 bits
_MAX_CALL_DEPTH = 16
_MAX_MODULE_DEPTH = 128
_MAX_RANK = 2**31
_MAX_NS = 2**62


def inconsistency_of_lines(lines: recording.PythonLines) -> str | None:
    """Return what is wrong with recorded lines, ``None`` if nothing is."""
    return next(_lines_problems(lines), None)


def _lines_problems(lines: recording.PythonLines) -> Iterator[str]:
    yield from _of_positions(lines)
    yield from _of_depths(lines.positions)
    for each in lines.threads:
        yield from (f"thread {each.thread}: {p}" for p in _of_thread(each, len(lines.positions)))
    yield from _of_clock(lines.clock, lines.end_ns)


def _of_positions(lines: recording.PythonLines) -> Iterator[str]:
    for at, each in enumerate(lines.positions):
        if each.parent is not None and not 0 <= each.parent < at:
            yield f"position {at} lies within {each.parent}, expected one before it"
        if (each.function is None) is (each.module is None):
            yield f"position {at} is of a function and a module, or of none"
        if not _is_index(each.function, lines.functions) or not _is_index(
            each.module, lines.modules
        ):
            yield f"position {at} names a function or a module that is not there"
        if not 0 <= each.line < _MAX_VALUE:
            yield f"position {at} is at line {each.line}"


def _is_index(index: int | None, things: Sequence[object]) -> bool:
    return index is None or 0 <= index < len(things)


def _of_depths(positions: Iterable[recording.Position]) -> Iterator[str]:
    depths: list[int] = []
    for each in positions:
        depths.append(1 + (0 if each.parent is None else depths[each.parent]))
    if max(depths, default=0) > recording.MAX_POSITION_DEPTH:
        yield f"positions {max(depths)} deep, expected {recording.MAX_POSITION_DEPTH} at most"


def _of_thread(thread: recording.ThreadPositions, positions: int) -> Iterator[str]:
    if not _is_time(thread.thread):
        yield "no id of a thread"
    sizes = [sum(map(len, part)) for part in (thread.times, thread.positions)]
    if sizes[0] != sizes[1] or sizes[0] % 8:
        yield f"{sizes[0]} bytes of times and {sizes[1]} of positions, expected 8 for each"
        return
    indices, times = thread.indices, thread.times_ns
    if len(indices) and not -1 <= indices.min() <= indices.max() < positions:
        yield f"a position of {positions} that is not there"
    if len(times) and not -_MAX_VALUE < times.min() <= times.max() < _MAX_VALUE:
        yield "a time that is none"
    if (times[1:] < times[:-1]).any():
        yield "times that go back"


def _of_clock(clock: Iterable[recording.ClockMark], end_ns: int) -> Iterator[str]:
    times = [end_ns, *(t for mark in clock for t in (mark.before_ns, mark.after_ns))]
    if not all(map(_is_time, times)):
        yield "a clock's time that is none"
    if any(mark.before_ns > mark.after_ns for mark in clock):
        yield "a clock that goes back"


def _is_time(time_ns: int) -> bool:
    return -_MAX_VALUE < time_ns < _MAX_VALUE


def inconsistency_of_session(
    settings: Settings, graphs: Sequence[GraphInstance], compiles: Sequence[Compilation] = ()
) -> str | None:
    """Return what is wrong with what was recorded besides the trace, ``None`` if nothing is."""
    problems = (_of_session(settings, graphs), _of_compiles(compiles, len(graphs)))
    return next(chain.from_iterable(problems), None)


def inconsistency_of_provenance(record: Provenance) -> str | None:
    """Return what is wrong with a stored record, ``None`` if nothing is."""
    return next(_of_provenance(record), None)


def _of_session(settings: Settings, graphs: Sequence[GraphInstance]) -> Iterator[str]:
    if not 0 <= settings.rank < _MAX_RANK or not 0 < settings.world_size < _MAX_RANK:
        yield f"rank {settings.rank} of {settings.world_size}, expected one of a number of ranks"
    before_ns = (*settings.unprofiled_steps_ns, settings.unprofiled_cpu_ns or 0)
    if any(not 0 <= each < _MAX_NS for each in before_ns):
        yield "a step before the recording of less than no time, or of over a century"
    if settings.first_step_ns is not None and not abs(settings.first_step_ns) < _MAX_NS:
        yield "a first step that began over a century away"
    parts = chain.from_iterable(part.modules for _, part in settings.called_parts)
    frames = chain(settings.called_modules, parts)
    paths = (frame.path for _, frame in frames if frame is not None)
    yield from _of_modules(paths, "settings")
    for at, graph in enumerate(graphs):
        yield from (f"graph {at}: {problem}" for problem in _of_instance(graph))


def _of_instance(graph: GraphInstance) -> Iterator[str]:
    yield from _of_nodes(graph.nodes)
    yield from _of_provenance(graph.record)


def _of_provenance(record: Provenance) -> Iterator[str]:
    yield from _of_nodes(record.nodes)
    for at, site in enumerate(record.call_sites):
        yield from (f"call site {at}: {problem}" for problem in _of_site(site))
    for each in record.autotuned:
        yield from _of_autotuned(each)


def _of_nodes(nodes: Iterable[FxNode]) -> Iterator[str]:
    for node in nodes:
        yield from _of_modules((frame.path for frame in node.lineage.modules), f"node {node.name}")


def _of_modules(paths: Iterable[str], where: str) -> Iterator[str]:
    if any(path.count(".") >= _MAX_MODULE_DEPTH for path in paths):
        yield f"{where}: a module over {_MAX_MODULE_DEPTH} deep"


def _of_site(site: CallSite) -> Iterator[str]:
    if len(site.weights) != len(site.nodes):
        yield f"{len(site.weights)} weights of {len(site.nodes)} nodes, expected one each"
    if site.values and len(site.values) != len(site.writes):
        yield f"values of {len(site.values)} of {len(site.writes)} buffers, expected one each"
    if any(weight < 0 for weight in site.weights):
        yield "a weight below 0"
    if len(site.within) > _MAX_CALL_DEPTH:
        yield f"nested {len(site.within)} deep, expected {_MAX_CALL_DEPTH} at most"


def _of_autotuned(autotuned: Autotuned) -> Iterator[str]:
    if not _is_index(autotuned.chosen, autotuned.choices):
        yield f"a choice that is none of the {len(autotuned.choices)}"
    if any(not 0 <= (each.duration_ns or 0) < _MAX_NS for each in autotuned.choices):
        yield "a choice that took less than no time, or over a century"


def _of_compiles(compiles: Sequence[Compilation], graphs: int) -> Iterator[str]:
    if sum(each.duration_ns for each in compiles) >= _MAX_NS:
        yield "compilations of more time than a clock counts"
    for at, compiled in enumerate(compiles):
        yield from (f"compile {at}: {problem}" for problem in _of_compile(compiled, graphs))


def _of_compile(compiled: Compilation, graphs: int) -> Iterator[str]:
    if any(each.duration_ns < 0 for each in compiled.spans):
        yield "a duration below 0"
    spent = [each.duration_ns for each in compiled.times]
    if min(spent, default=0) < 0 or sum(spent) != compiled.duration_ns:
        yield f"{sum(spent)} ns in its phases, expected the {compiled.duration_ns} that it took"
    of_graphs = (*compiled.graphs, *(each.graph or 0 for each in compiled.times))
    if any(not 0 <= graph < graphs for graph in of_graphs if graph):
        yield f"a graph that is none of the {graphs}"
