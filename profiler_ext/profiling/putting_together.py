"""Owns how a recording is put together when its cycle is over: a part that fails is a gap of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from profiler_ext.capture.graphs.failed import failure_gap
from profiler_ext.capture.held_modules import HeldModules
from profiler_ext.isolation.guard import Guard
from profiler_ext.kineto.recording import with_valid_utf8
from profiler_ext.profiling import switch
from profiler_ext.profiling.generated_code import with_source
from profiler_ext.profiling.lines import NOTHING_KEPT
from profiler_ext.profiling.notebook_cells import with_cells
from profiler_ext.records import (
    Analysis,
    Compilation,
    Gap,
    GapReason,
    PythonLines,
    Recording,
    Settings,
    Trace,
    without_source,
)

Lines = tuple[PythonLines | None, tuple[Gap, ...]]
"""Those of the program that ran, and what is missing of them."""
NO_LINES: Lines = (None, (NOTHING_KEPT,))
GRAPHS = "graphs"
"""The hook that keeps what can run."""
_GAPS_UNKNOWN = Gap(GapReason.CAPTURE_FAILED, "gaps: what the hooks could not see cannot be told")


def assemble_recording(
    trace: Trace,
    settings: Callable[[], Settings],
    held: HeldModules,
    lines: Lines,
    setup_guard: Guard,
    guard: Guard,
) -> Recording:
    """Return what was recorded in a cycle, as far as it can be told.

    Where the settings fail, nobody knows whose a line is: that takes what is known of all graphs,
    as of a hook of no known graph, and of the lines.

    Args:
        trace: torch's trace of it.
        settings: makes what is needed to read it.
        held: knows the models of the paths in it.
        lines: those of the program that ran meanwhile.
        outset: what failed before capture was on.
        guard: keeps failures from the program.
    """
    made_settings = guard.run("settings", settings)  # before the graphs
    python, line_gaps = lines if made_settings is not None else NO_LINES
    if made_settings is not None:
        made_settings, python = guard.run("models", held.named, made_settings, python) or (None, None)
    graphs = guard.run(GRAPHS, switch.graphs)  # before the gaps: what is kept is read now
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
    """Return a recording with the texts that are kept of its source, as every format can have them.

    Args:
        recording: what was recorded in this process.
        keeps_source: text of source may be kept.
        guard: keeps failures from the program.
    """
    complete = guard.run("texts", _with_texts, recording, keeps_source, guard)
    return complete or (recording if keeps_source else without_source(recording))


def _with_texts(recording: Recording, keeps_source: bool, guard: Guard) -> Recording:
    complete = with_source(with_cells(recording, guard), keeps_source, guard)
    return guard.run("texts", with_valid_utf8, complete) or complete


def source_roots(recording: Recording, guard: Guard) -> tuple[str, ...]:
    """Return the folders of the source that this process ran, and of the code that torch made.

    Args:
        recording: what was recorded in it.
        guard: keeps failures from the program.
    """
    return guard.run("source roots", _source_roots, recording) or ()


def learn_callback(guard: Guard) -> Callable[[Analysis], None] | None:
    """Return what is told of what the attribution of a recording has found."""
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
