"""Owns what must hold between the fields of records that were read from a file.

The types of single fields are checked where they are decoded; here is what one field says of
another, and what no compile can give. A record that another process wrote is not trusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from profiler_ext.records.provenance import CallSite, FxNode, GraphInstance, Provenance

if TYPE_CHECKING:
    from profiler_ext.records.compiles import Compilation
    from profiler_ext.records.recording import Settings

_MAX_CALL_DEPTH = 16
_MAX_MODULE_DEPTH = 128
_MAX_RANK = 2**31
_MAX_NS = 2**62


def inconsistency_of_session(
    settings: Settings, graphs: Sequence[GraphInstance], compiles: Sequence[Compilation] = ()
) -> str | None:
    """Return what is wrong with what was recorded besides the trace, ``None`` if nothing is.

    Args:
        settings: what was recorded of the run.
        graphs: its graph instances.
        compiles: what compiling took in it.
    """
    problems = (_of_session(settings, graphs), _of_compiles(compiles, len(graphs)))
    return next(chain.from_iterable(problems), None)


def inconsistency_of_provenance(record: Provenance) -> str | None:
    """Return what is wrong with a stored record, ``None`` if nothing is."""
    return next(_of_provenance(record), None)


def _of_session(settings: Settings, graphs: Sequence[GraphInstance]) -> Iterator[str]:
    if not 0 <= settings.rank < _MAX_RANK or not 0 < settings.world_size < _MAX_RANK:
        yield f"rank {settings.rank} of {settings.world_size}, expected one of a number of ranks"
    if any(not 0 <= each < _MAX_NS for each in settings.steps_before_ns):
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


def _of_nodes(nodes: Iterable[FxNode]) -> Iterator[str]:
    for node in nodes:
        yield from _of_modules((frame.path for frame in node.lineage.modules), f"node {node.name}")


def _of_modules(paths: Iterable[str], where: str) -> Iterator[str]:
    if any(path.count(".") >= _MAX_MODULE_DEPTH for path in paths):
        yield f"{where}: a module over {_MAX_MODULE_DEPTH} deep"


def _of_site(site: CallSite) -> Iterator[str]:
    if len(site.weights) != len(site.nodes):
        yield f"{len(site.weights)} weights of {len(site.nodes)} nodes, expected one each"
    if any(weight < 0 for weight in site.weights):
        yield "a weight below 0"
    if len(site.within) > _MAX_CALL_DEPTH:
        yield f"nested {len(site.within)} deep, expected {_MAX_CALL_DEPTH} at most"


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
