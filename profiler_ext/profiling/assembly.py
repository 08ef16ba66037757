"""The assembly of a recording when its cycle is over; a part that fails becomes a gap."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from profiler_ext.capture.graphs.failed_graphs import failure_gap
from profiler_ext.capture.held_modules import HeldModules
from profiler_ext.file_io import read_regular
from profiler_ext.isolation.guard import Guard
from profiler_ext.kineto.names import graph_key, marked_graph
from profiler_ext.kineto.recording import with_valid_utf8, without_source
from profiler_ext.profiling import switch
from profiler_ext.profiling.lines import NOTHING_KEPT
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.compiles import Compilation
from profiler_ext.records.events import Trace
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.lineage import Frame, ModuleFrame, PartModules
from profiler_ext.records.provenance import FxNode, Gap, GraphInstance
from profiler_ext.records.recording import (
    MAX_CELL_LINE_LENGTH,
    MAX_CELL_LINES,
    MAX_CODE_BYTES,
    MAX_MODULE_BYTES,
    MAX_PACKED_BYTES,
    Cell,
    GeneratedModule,
    PythonLines,
    Recording,
    Settings,
    cell_named,
    generated_module,
)
from profiler_ext.source_paths import cell_lines, cell_number, library_roots
from profiler_ext.torch_compat import process

_CODE_HOOK = "generated code"
_FAILED = Gap(GapReason.CODE_NOT_KEPT, "reading it failed")
_NAMED = 3


def with_source(recording: Recording, is_wanted: bool, guard: Guard) -> Recording:
    """Return a recording with the code that Inductor generated for its graphs.

    Code that is not kept is a gap. Without ``is_wanted`` no source text is kept, not even of lines.
    """
    if not is_wanted:
        return without_source(recording)
    generated, gaps = guard.run(_CODE_HOOK, _kept, recording) or ((), (_FAILED,))
    return replace(recording, generated=generated, gaps=(*recording.gaps, *gaps))


def _kept(recording: Recording) -> tuple[tuple[GeneratedModule, ...], tuple[Gap, ...]]:
    kept = _KeptModules()
    for path in _paths(recording):
        kept.add(path)
    gaps = (_gap(why, paths) for why, paths in kept.skipped.items())
    return tuple(kept.modules.values()), tuple(gaps)


class _KeptModules:
    def __init__(self) -> None:
        self.modules: dict[str, GeneratedModule] = {}  # by digest
        self.skipped: dict[str, list[str]] = {}  # by the reason

    def add(self, path: str) -> None:
        """Read a module, and keep it if there is room."""
        try:
            text = read_regular(Path(path), MAX_MODULE_BYTES).decode("utf-8", "replace")
        except OSError as error:
            self._skip(path, f"cannot be read ({error.strerror})")
            return
        made = generated_module(text, (path,))
        known = self.modules.get(made.digest)
        if known is not None:
            self.modules[made.digest] = replace(known, paths=(*known.paths, path))
        elif self._has_room(made):
            self.modules[made.digest] = made
        else:
            self._skip(path, f"would take over {MAX_PACKED_BYTES:,} bytes with the others")

    def _has_room(self, made: GeneratedModule) -> bool:
        every = (*self.modules.values(), made)
        packed, plain = (sum(e.packed_bytes for e in every), sum(e.size_bytes for e in every))
        return packed <= MAX_PACKED_BYTES and plain <= MAX_CODE_BYTES

    def _skip(self, path: str, why: str) -> None:
        self.skipped.setdefault(why, []).append(path)


def _gap(why: str, paths: list[str]) -> Gap:
    named = ", ".join(paths[:_NAMED]) + (", ..." if len(paths) > _NAMED else "")
    return Gap(GapReason.CODE_NOT_KEPT, f"{len(paths)} modules: each {why}: {named}")


def _paths(recording: Recording) -> Iterable[str]:
    """Return the paths of the modules, those that ran in the recording first."""
    ran = _graphs_run(recording.graphs, recording.trace)
    first = [graph for graph in recording.graphs if graph.index in ran]
    modules = (graph.output_module for graph in (*first, *recording.graphs))
    return dict.fromkeys(module for module in modules if module)


def _graphs_run(graphs: Iterable[GraphInstance], trace: Trace) -> set[int]:
    """Return the graphs with a call mark in the trace: ours, or torch's with the key."""
    names = trace.events.name.strings
    marked = {marked_graph(name) for name in names}
    keys = {graph_key(name) for name in names} - {None}
    return {graph.index for graph in graphs if graph.index in marked or graph.key in keys}


_CELLS_HOOK = "notebook cells"
Names = Mapping[str, str]
"""The name of each cell, by the file name in its code."""


def with_cells(recording: Recording, guard: Guard) -> Recording:
    """Return a recording that names cells ``In[3]``, and has their text."""
    return guard.run(_CELLS_HOOK, _with_cells, recording) or recording


def _with_cells(recording: Recording) -> Recording:
    numbers = {file: cell_number(file) for file in dict.fromkeys(_files(recording))}
    names = {file: cell_named(at) for file, at in numbers.items() if at is not None}
    if not names:
        return recording
    python = recording.python
    return replace(
        recording,
        graphs=tuple(_graph(each, names) for each in recording.graphs),
        python=None if python is None else _lines(python, names),
        compiles=tuple(_compilation(each, names) for each in recording.compiles),
        cells=tuple(_cell(*each) for each in names.items()),
    )


def _files(recording: Recording) -> Iterator[str]:
    stacks = (node.lineage.stack for graph in recording.graphs for node in graph.nodes)
    breaks = (each.stack for compilation in recording.compiles for each in compilation.breaks)
    guards = (each.stack for compilation in recording.compiles for each in compilation.recompiles)
    for frames in (*dict.fromkeys(stacks), *breaks, *guards):
        yield from (frame.file for frame in frames)
    yield from (each.file for each in recording.compiles if each.file is not None)
    if recording.python is not None:
        yield from (each.file for each in recording.python.functions)


def _cell(file: str, name: str) -> Cell:
    lines = cell_lines(file)
    is_kept = len(lines) <= MAX_CELL_LINES
    return Cell(name, tuple(each[:MAX_CELL_LINE_LENGTH] for each in lines) if is_kept else ())


def _frames(stack: Iterable[Frame], names: Names) -> tuple[Frame, ...]:
    return tuple(
        replace(frame, file=names[frame.file]) if frame.file in names else frame for frame in stack
    )


def _graph(graph: GraphInstance, names: Names) -> GraphInstance:
    return replace(graph, nodes=tuple(_node(each, names) for each in graph.nodes))


def _node(node: FxNode, names: Names) -> FxNode:
    stack = _frames(node.lineage.stack, names)
    return replace(node, lineage=replace(node.lineage, stack=stack))


def _lines(python: PythonLines, names: Names) -> PythonLines:
    functions = (replace(f, file=names.get(f.file, f.file)) for f in python.functions)
    return replace(python, functions=tuple(functions))


def _compilation(compilation: Compilation, names: Names) -> Compilation:
    breaks = (replace(each, stack=_frames(each.stack, names)) for each in compilation.breaks)
    guards = (replace(each, stack=_frames(each.stack, names)) for each in compilation.recompiles)
    return replace(
        compilation,
        file=None if compilation.file is None else names.get(compilation.file, compilation.file),
        breaks=tuple(breaks),
        recompiles=tuple(guards),
    )


def settings_of_process(
    user_roots: Iterable[str],
    step_source: str,
    called: tuple[tuple[int, ModuleFrame | PartModules], ...],
    options: tuple[str, ...] = (),
    unprofiled_steps_ns: tuple[int, ...] = (),
    unprofiled_steps_on_device: bool = False,
    unprofiled_cpu_ns: int | None = None,
    step_call: str = "",
    debug_settings: tuple[str, ...] = (),
) -> Settings:
    """Return the settings of a recording in this process.

    ``called`` are modules, and parts of graphs compiled separately, by the number in the mark;
    ``unprofiled_steps_ns`` are the last step times without profiling.
    """
    world_size = _number("WORLD_SIZE", 1)
    return Settings(
        user_roots=tuple(user_roots),
        library_roots=library_roots(),
        command=tuple(map(str, sys.argv or ())),  # the program may have set anything
        torch_version=process.version(),
        rank=_number("RANK", 0),
        world_size=world_size,
        step_source=step_source,
        called_modules=tuple((n, each) for n, each in called if isinstance(each, ModuleFrame)),
        called_parts=tuple((n, each) for n, each in called if isinstance(each, PartModules)),
        options=options,
        host=platform.node() if world_size > 1 else "",
        unprofiled_steps_ns=unprofiled_steps_ns,
        unprofiled_steps_on_device=unprofiled_steps_on_device,
        unprofiled_cpu_ns=unprofiled_cpu_ns,
        step_call=step_call,
        debug_settings=debug_settings,
    )


def _number(variable: str, otherwise: int) -> int:
    """Return a number that a launcher set; programs use these names too, with any value."""
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else otherwise


Lines = tuple[PythonLines | None, tuple[Gap, ...]]
"""The program's lines, and their gaps."""
NO_LINES: Lines = (None, (NOTHING_KEPT,))
GRAPHS = "graphs"
"""The hook that keeps graphs while they can run."""
_GAPS_UNKNOWN = Gap(GapReason.CAPTURE_FAILED, "gaps: what the hooks could not see is unknown")


def assemble_recording(
    trace: Trace,
    settings: Callable[[], Settings],
    held: HeldModules,
    lines: Lines,
    setup_guard: Guard,
    guard: Guard,
) -> Recording:
    """Return what was recorded in a cycle."""
    # Without settings the owner of a line is unknown, so its failure loses all graphs and lines.
    made_settings = guard.run("settings", settings)  # before the graphs
    python, line_gaps = lines if made_settings is not None else NO_LINES
    if made_settings is not None:
        named = guard.run("models", held.named, made_settings, python)
        made_settings, python = named or (None, None)
    graphs = guard.run(GRAPHS, switch.graphs)  # before the gaps: records are read now
    compiles = guard.run("compiles", _compiles, trace.base_ns) or ()
    if graphs is None:
        compiles = tuple(each.without_graphs() for each in compiles)
    gaps = guard.run("gaps", _gaps, setup_guard)
    return Recording(
        trace=trace,
        graphs=graphs or (),
        settings=made_settings or Settings(),
        gaps=(*((_GAPS_UNKNOWN,) if gaps is None else gaps), *line_gaps),
        python=python,
        compiles=compiles,
    )


def with_texts(recording: Recording, keeps_source: bool, guard: Guard) -> Recording:
    """Return a recording with the source texts that every format can have."""
    complete = guard.run("texts", _with_texts, recording, keeps_source, guard)
    return complete or (recording if keeps_source else without_source(recording))


def _with_texts(recording: Recording, keeps_source: bool, guard: Guard) -> Recording:
    complete = with_source(with_cells(recording, guard), keeps_source, guard)
    return guard.run("texts", with_valid_utf8, complete) or complete


def source_roots(recording: Recording, guard: Guard) -> tuple[str, ...]:
    """Return the folders of the source that this process ran, and of generated code."""
    return guard.run("source roots", _source_roots, recording) or ()


def learn_callback(guard: Guard) -> Callable[[Analysis], None] | None:
    """Return a callback for the library kernels that attribution finds."""
    learn = guard.run("learn", _learn)
    return None if learn is None else guard.callback("learn", learn)


def _learn() -> Callable[[Analysis], None] | None:
    capture = switch.current()
    return None if capture is None else capture.learn


def _source_roots(recording: Recording) -> tuple[str, ...]:
    modules = (graph.output_module for graph in recording.graphs)
    folders = dict.fromkeys(str(Path(module).parent) for module in modules if module)
    return (*recording.settings.user_roots, *folders)


def _compiles(base_ns: int) -> tuple[Compilation, ...]:
    capture = switch.current()
    return capture.compiles_since(base_ns) if capture else ()


def _gaps(setup_guard: Guard) -> tuple[Gap, ...]:
    capture = switch.current()
    return (*map(failure_gap, setup_guard.failures), *(capture.all_gaps if capture else ()))
