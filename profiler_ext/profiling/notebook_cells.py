"""Owns that a session names a notebook's cells as the notebook does, and has their text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from profiler_ext.files.cells import cell_lines, cell_number
from profiler_ext.isolation.guard import Guard
from profiler_ext.records import (
    MAX_CELL_LINE_LENGTH,
    MAX_CELL_LINES,
    Cell,
    Compilation,
    Frame,
    FxNode,
    GraphInstance,
    PythonLines,
    Recording,
    cell_named,
)

_CELLS_HOOK = "notebook cells"
Names = Mapping[str, str]
"""What each code that is a cell's is called, by what it names as its file."""


def with_cells(recording: Recording, guard: Guard) -> Recording:
    """Return a recording that calls cells ``In[3]``, and has their text.

    Args:
        recording: what was recorded in this process.
        guard: what keeps failures from the program.

    Returns:
        The recording; the same where no line is a cell's.
    """
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
