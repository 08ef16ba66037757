"""Owns what a session keeps of source: the generated code of its graphs, or no text at all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from profiler_ext.files.regular import read_regular
from profiler_ext.isolation.guard import Guard
from profiler_ext.kineto.names import graph_key, marked_graph
from profiler_ext.records import (
    MAX_CODE_BYTES,
    MAX_MODULE_BYTES,
    MAX_PACKED_BYTES,
    Gap,
    GapReason,
    GeneratedModule,
    GraphInstance,
    Recording,
    Trace,
    generated_module,
    without_source,
)

_CODE_HOOK = "generated code"
_FAILED = Gap(GapReason.CODE_NOT_KEPT, "reading it failed")
_NAMED = 3


def with_source(recording: Recording, is_wanted: bool, guard: Guard) -> Recording:
    """Return a recording with the code that Inductor generated for its graphs, as it lies here.

    Args:
        recording: what was recorded in this process.
        is_wanted: text of source may be kept; otherwise none is, not even that of lines.
        guard: what keeps failures from the program.

    Returns:
        The recording; code that is not kept is a gap of it.
    """
    if not is_wanted:
        return without_source(recording)
    generated, gaps = guard.run(_CODE_HOOK, _kept, recording) or ((), (_FAILED,))
    return replace(recording, generated=generated, gaps=(*recording.gaps, *gaps))


def _kept(recording: Recording) -> tuple[tuple[GeneratedModule, ...], tuple[Gap, ...]]:
    kept = _KeptModules()
    for path in _paths(recording):
        kept.add(path)
    return kept.modules, kept.gaps


class _KeptModules:
    """The modules that are kept, and why others are not."""

    def __init__(self) -> None:
        self._modules: dict[str, GeneratedModule] = {}
        self._not_kept: dict[str, list[str]] = {}

    @property
    def modules(self) -> tuple[GeneratedModule, ...]:
        return tuple(self._modules.values())

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """One for each reason, which names the first modules."""
        return tuple(_gap(why, paths) for why, paths in self._not_kept.items())

    def add(self, path: str) -> None:
        """Read a module, and keep it where there is room."""
        try:
            text = read_regular(Path(path), MAX_MODULE_BYTES).decode("utf-8", "replace")
        except OSError as error:
            self._skip(path, f"cannot be read ({error.strerror})")
            return
        made = generated_module(text, (path,))
        known = self._modules.get(made.digest)
        if known is not None:
            self._modules[made.digest] = replace(known, paths=(*known.paths, path))
        elif self._has_room(made):
            self._modules[made.digest] = made
        else:
            self._skip(path, f"would take over {MAX_PACKED_BYTES:,} bytes with the others")

    def _has_room(self, made: GeneratedModule) -> bool:
        every = (*self._modules.values(), made)
        packed, plain = (sum(e.packed_bytes for e in every), sum(e.size_bytes for e in every))
        return packed <= MAX_PACKED_BYTES and plain <= MAX_CODE_BYTES

    def _skip(self, path: str, why: str) -> None:
        self._not_kept.setdefault(why, []).append(path)


def _gap(why: str, paths: list[str]) -> Gap:
    named = ", ".join(paths[:_NAMED]) + (", ..." if len(paths) > _NAMED else "")
    return Gap(GapReason.CODE_NOT_KEPT, f"{len(paths)} modules: each {why}: {named}")


def _paths(recording: Recording) -> Iterable[str]:
    """Return the paths of the modules, each once: those that ran while it was recorded first."""
    ran = _graphs_run(recording.graphs, recording.trace)
    first = [graph for graph in recording.graphs if graph.index in ran]
    modules = (graph.output_module for graph in (*first, *recording.graphs))
    return dict.fromkeys(module for module in modules if module)


def _graphs_run(graphs: Iterable[GraphInstance], trace: Trace) -> set[int]:
    """Return the graphs of whose calls the trace has a mark: ours, or torch's with the key."""
    names = trace.events.name.strings
    marked = {marked_graph(name) for name in names}
    keys = {graph_key(name) for name in names} - {None}
    return {graph.index for graph in graphs if graph.index in marked or graph.key in keys}
