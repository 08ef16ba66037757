"""Owns what was recorded: the trace, the compiled graphs, and what is needed to read them."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_ext.records.cells import Cell
from profiler_ext.records.compiles import Compilation
from profiler_ext.records.events import Trace
from profiler_ext.records.generated_code import GeneratedModule
from profiler_ext.records.lineage import ModuleFrame, PartModules
from profiler_ext.records.provenance import Gap, GraphInstance
from profiler_ext.records.python_lines import PythonLines


@dataclass(frozen=True, slots=True)
class Settings:
    """What is needed to read a recording anywhere.

    Attributes:
        user_roots: folders whose files are the user's own (the script's, the working folder).
        library_roots: folders that never are (site-packages, the standard library).
        command: the profiled command line, or ``()``.
        torch_version: torch that ran.
        rank: rank of the process, 0 without ranks.
        world_size: number of ranks, 1 without ranks.
        step_source: what ended a step: ``prof.step``, ``Optimizer.step``, ``forward``,
            ``function`` or ``none``.
        called_parts: of equal parts of a graph that a backend compiled by itself, which share an
            artifact, the modules that a call was on, by the number in its mark.
        models: the names of the models, at which paths of modules begin; none where there is one.
        asked: what was asked of the profiler already: ``run``, ``recompile``, ``shapes``; advice to
            do it is not given again.
        called_modules: modules that were compiled by themselves, by the number in their mark in
            the trace: each with its path from the user's model.
        host: the name of the machine, of one rank among several; ``""`` without ranks, and in
            recordings of before it was kept.
        steps_before_ns: how long each of the last steps before the recording took, in which no
            profiler was on; at most 50, none where there were none.
        steps_before_on_device: these are times between events on the device's stream; else, as
            without a device and in recordings of before they were kept, the program's own.
        first_step_ns: when its first step began on the devices, of a step that was cut out of a
            recording: what it waited for is not in the trace.
    """

    user_roots: tuple[str, ...] = ()
    library_roots: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    torch_version: str = ""
    rank: int = 0
    world_size: int = 1
    step_source: str = "none"
    called_modules: tuple[tuple[int, ModuleFrame], ...] = ()
    asked: tuple[str, ...] = ()
    called_parts: tuple[tuple[int, PartModules], ...] = ()
    models: tuple[str, ...] = ()
    host: str = ""
    steps_before_ns: tuple[int, ...] = ()
    steps_before_on_device: bool = False
    first_step_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Recording:
    """What was recorded.

    Attributes:
        trace: the trace.
        graphs: the compiled graphs.
        settings: what is needed to read it anywhere.
        gaps: what went wrong.
        python: the lines of the program that ran meanwhile; ``None`` where none were watched.
        compiles: what compiling took in the process, before the recording and in it.
        generated: the code that Inductor generated for the graphs, as far as it is kept.
        cells: the cells of a notebook that the lines are of.
    """

    trace: Trace
    graphs: tuple[GraphInstance, ...] = ()
    settings: Settings = Settings()
    gaps: tuple[Gap, ...] = ()
    python: PythonLines | None = None
    compiles: tuple[Compilation, ...] = ()
    generated: tuple[GeneratedModule, ...] = ()
    cells: tuple[Cell, ...] = ()
