"""Owns the sentences that tell a person what is missing from an analysis, and the remedy."""

from __future__ import annotations

import numpy as np

from profiler_ext.attribution.columns import ask
from profiler_ext.attribution.phases import differentiates, is_leaked
from profiler_ext.records import CacheState, GapReason, Launches, Recording

_REMEDIES = {
    GapReason.GRAPH_NOT_CAPTURED: (
        "ran in compiled graphs that were compiled, or cached by an earlier run, before capture "
        "was switched on; start the script with `profiler-ext run`, call profiler_ext.enable() "
        "before the first compile, or set PROFILER_EXT=1; compile cached graphs once more with "
        "`profiler-ext run --recompile` or profiler_ext.enable(recompile=True)"
    ),
    GapReason.COMPILED_IN_CHILD: (
        "ran in graphs that torch compiled in a child process, where capture is not; unset "
        "TORCHINDUCTOR_FX_COMPILE_MODE and compile them once more"
    ),
    GapReason.GRAPH_AMBIGUOUS: (
        "ran in a compiled graph that several modules share, and the trace does not tell which"
    ),
    GapReason.AMBIGUOUS_EXTERN_RUN: (
        "are library kernels that a CUDA graph replayed side by side; profile one step before "
        "the replay, or start one run with `profiler-ext run`: that tells which kernels each "
        "call launches, and the store keeps it"
    ),
    GapReason.ALIGNMENT_MISMATCH: (
        "do not fit the call sites of their graph: events were lost, or a CUDA graph replayed "
        "once what its recording did not run; profile two steps or more, and report the "
        "recording if it stays"
    ),
    GapReason.CALL_SITES_UNVERIFIED: (
        "do not fit call sites which capture could not check; please report the recording"
    ),
    GapReason.AOT_INDUCTOR: (
        "are Inductor's kernels outside every call of a compiled graph: AOTInductor's packages "
        "mark no call, so none can be told from another; profile the model under torch.compile"
    ),
    GapReason.NO_LAUNCH_CALL: (
        "have no launching call in the trace; it was enqueued before profiling began"
    ),
    GapReason.STALE_SOURCE_LINE: (
        "have no line because the source changed after the graph was cached; clear the cache"
    ),
    GapReason.TRACED_GRADIENT: (
        "differentiate inside the compiled function; torch gives them the line that asks for "
        "the gradient, so they are led to their op only"
    ),
    GapReason.COMPILED_AUTOGRAD: (
        "ran in graphs of compiled autograd, and the backward graphs that they copy are not known; "
        "switch capture on before the forward is compiled, and compile it in a fresh cache"
    ),
    GapReason.EAGER_BACKWARD: (
        "are autograd's own work in graphs of compiled autograd, the backward of what ran eagerly; "
        "torch keeps no line of it, so it is led to its op only"
    ),
    GapReason.CAPTURE_FAILED: (
        "ran in graphs of which a hook of capture lost what it knew, so that nothing is told of "
        "them; please report the failure that is named below"
    ),
    GapReason.AUTOTUNING: "are trials of autotuning; profile after a warm-up step",
    GapReason.COMPILING: (
        "ran while torch compiled, on fake tensors or to fold constants; profile after a warm-up "
        "step"
    ),
}


def notes_on(recording: Recording, launches: Launches) -> tuple[str, ...]:
    """Say what is missing from an analysis and what to do about it."""
    notes = [_note(launches, reason, remedy) for reason, remedy in _REMEDIES.items()]
    failures = [f"{gap.reason}: {gap.detail}" for gap in recording.gaps]
    notes += [_leak_note(recording), _unlinked_note(recording), _unreadable_note(recording)]
    notes += [_unstored_note(recording), _attached_note(recording), _told_note(recording)]
    notes += [_clamped_note(recording)]
    return (*(note for note in notes if note), *failures)


def _clamped_note(recording: Recording) -> str | None:
    """Count the events whose duration no clock can give."""
    count = recording.trace.clamped
    if not count:
        return None
    return f"{count} events of the trace have a duration below zero; each counts as no time."


def _leak_note(recording: Recording) -> str | None:
    """Say where torch's tag was contradicted, and the phase corrected."""
    graphs = recording.graphs
    leaked = [[node.name for node in graph.nodes if is_leaked(node, graph)] for graph in graphs]
    names = [name for found in leaked for name in found]
    if not names:
        return None
    return (
        f"torch tagged {len(names)} forward nodes of {sum(map(bool, leaked))} graphs with "
        f"autograd_backward ({_first(names)}); the rest of what it says of them contradicts "
        "that, and their phase is forward."
    )


def _note(launches: Launches, reason: GapReason, remedy: str) -> str | None:
    rows = ask(launches.gap, lambda gap: gap == reason)
    count, time_ns = int(np.count_nonzero(rows)), int(launches.duration_ns[rows].sum())
    return f"{count} launches ({time_ns / 1000:.1f} us) {remedy}." if count else None


def _unlinked_note(recording: Recording) -> str | None:
    """Count the backward nodes that neither ``seq_nr`` nor another rule led to a forward node."""
    backward = [
        node
        for graph in recording.graphs
        if graph.is_backward
        for node in graph.nodes
        if differentiates(node, graph)
    ]
    names = [node.name for node in backward if node.forward_node is None]
    if not names:
        return None
    return (
        f"{len(names)} of {len(backward)} backward nodes ({_first(names)}) differentiate a forward "
        "node that torch's numbers, sources and stacks do not tell; they have no forward_node."
    )


def _unstored_note(recording: Recording) -> str | None:
    """Say that a later process will know less."""
    found = _details(recording, GapReason.RECORD_NOT_STORED)
    if not found:
        return None
    return f"{len(found)} records of graphs could not be stored ({_first(found)})."


def _details(recording: Recording, reason: GapReason) -> list[str]:
    return [g.detail for graph in recording.graphs for g in graph.gaps if g.reason == reason]


def _unreadable_note(recording: Recording) -> str | None:
    """Name the stored records that could not be read."""
    found = _details(recording, GapReason.RECORD_UNREADABLE)
    if not found:
        return None
    return (
        f"{len(found)} stored records cannot be read ({_first(found)}); `profiler-ext cache list` "
        "tells their state, and a compile with `profiler-ext run --recompile` replaces them."
    )


def _told_note(recording: Recording) -> str | None:
    """Say which graphs are known by their generated code alone, and the remedy."""
    told = [g for g in recording.graphs if g.provenance is not None and g.provenance.is_told]
    if not told:
        return None
    return (
        f"{len(told)} graphs are known only by what their generated code tells, because the cache "
        "was filled without capture; a line that runs in several modules leaves them open, a sum "
        "of gradients counts as backward. `profiler-ext run --recompile` compiles them once more "
        "and keeps what is captured."
    )


def _attached_note(recording: Recording) -> str | None:
    """Say where the lines of attached graphs come from."""
    attached = [g for g in recording.graphs if g.cache_state is CacheState.ATTACHED]
    if not attached:
        return None
    return (
        f"{len(attached)} graphs were attached from the store by their cache key; their lines are "
        "those of the run that stored them, and other source that gives an equal graph shares "
        "the key."
    )


def _first(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
