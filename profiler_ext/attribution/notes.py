"""Notes for the user on what is missing from an analysis, and the remedy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profiler_ext.attribution.phases import differentiates, is_leaked
from profiler_ext.kineto import classify, names
from profiler_ext.kineto.reader import SCHEMA_KEY
from profiler_ext.records import analysis, evidence, vocabulary
from profiler_ext.records.events import Trace, flag_rows
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.recording import Recording, Settings
from profiler_ext.records.share_sums import sum_by

# Usual even in a fully attributed step: a note only where they are much of it.
_USUAL = (GapReason.NO_LAUNCHING_OP, GapReason.WRAPPER_GLUE, GapReason.NO_SOURCE_LINE)
# The note on the launches covers the recording's own gap, or the user chose it.
_REPORTED_ELSEWHERE = (GapReason.LINES_OFF, GapReason.LINES_NEED_PYTHON_312, GapReason.SOURCE_OFF)
_NOTE_THRESHOLD = 0.05  # least fraction of the launches' time for a note on a usual gap
_AGAIN = ". `profiler-ext run --recompile` compiles them once more and keeps what is captured"
_RECOMPILE = "compile them once more with `profiler-ext run --recompile`"
# Remaining remedies of a gap where the user enabled some; the most effective first
_REMAINING_REMEDIES = {
    (GapReason.GRAPH_NOT_CAPTURED, "recompile"): "they were not compiled in this process after it "
    "had imported torch, though that was asked for; please report what compiled them",
    (GapReason.GRAPH_NOT_CAPTURED, "run"): _RECOMPILE,
    (GapReason.AMBIGUOUS_EXTERN_RUN, "run"): "skip fewer steps, so that those before the replay "
    "are seen; the store then keeps which kernels each call launches",
}


def reading_notes(recording: Recording, launches: analysis.Launches) -> Iterator[str]:
    """Return notes on parts of a trace that torch.profiler does not write today."""
    trace = recording.trace
    if trace.header and SCHEMA_KEY not in dict(trace.header):
        yield f"the trace has no {SCHEMA_KEY}, which torch.profiler writes: a tool changed it."
    if launches.evidence.where(evidence.SiteEvidence.ENCLOSING_OP).any():
        yield (
            "the external ids of this trace are correlation ids and name no op: each launch has "
            "the op around its launching call, on the thread of that call."
        )
    if len(launches) and np.ma.getmaskarray(launches.stream).all():
        yield from _cpu_notes(trace)
    yield from _share_notes(launches)


def _share_notes(launches: analysis.Launches) -> Iterator[str]:
    """Say how much of the time of fused kernels is split by measured shares, where any is."""
    split = launches.share_evidence
    measured = split.where(evidence.ShareEvidence.MEASURED) & launches.in_steps
    fused = ~split.where("") & launches.in_steps
    if not measured.any():
        return
    part = launches.duration_ns[measured].sum() / max(int(launches.duration_ns[fused].sum()), 1)
    yield (
        f"{part:.0%} of the time of kernels that compute several nodes is split by shares measured "
        "inside them (profiler-ext inside), the rest by the cost model."
    )


def _cpu_notes(trace: Trace) -> Iterator[str]:
    events = trace.events
    calls = flag_rows(events.category, classify.is_runtime_call)
    count = int((calls & flag_rows(events.name, names.is_launch_call)).sum())
    ranges = int(flag_rows(events.category, classify.is_profiler_range).sum())
    listed = ", ".join(dict.fromkeys(filter(None, (device.name for device in trace.devices))))
    if not (count or ranges or listed):
        return
    parts = [f"lists {listed}"] if listed else []
    parts += [f"has {count} calls that launch work"] if count else []
    parts += [f"has {ranges} profiler ranges, whose times are not measured"] if ranges else []
    yield (
        f"the trace {', '.join(parts)}, and has no event of a device: all times are the CPU's. If "
        "the program used a device, record it with that device's ProfilerActivity."
    )


def caveats(attributed: analysis.Analysis) -> tuple[str, ...]:
    """Return the notes that change how far the numbers can be trusted.

    They are the gaps that hold much of the device time, what failed while it was captured, and
    what another tool changed in the trace.
    """
    recording, launches = attributed.recording, attributed.launches
    least_ns = _NOTE_THRESHOLD * int(launches.duration_ns.sum())
    gaps = launches.gap.strings
    times = sum_by(launches.gap.codes, launches.duration_ns, len(gaps)).tolist()
    unattributed = dict(zip(gaps, times, strict=True))
    notes = [
        _note(launches, reason, recording.settings)
        for reason in GapReason
        if reason not in _REPORTED_ELSEWHERE and unattributed.get(reason, 0) > least_ns
    ]
    notes += [*reading_notes(recording, launches), *_failures(recording)]
    return tuple(note for note in notes if note)


def _failures(recording: Recording) -> Iterator[str]:
    """Yield what failed while the program was recorded."""
    for gap in recording.gaps:
        if gap.reason not in _REPORTED_ELSEWHERE:
            yield f"{gap.reason}: {gap.detail}"


def notes_on(recording: Recording, launches: analysis.Launches) -> tuple[str, ...]:
    """Return notes on what is missing from an analysis, with remedies."""
    settings = recording.settings
    notes = [_note(launches, reason, settings) for reason in GapReason]
    notes += [_leak_note(recording), _unlinked_note(recording), _unreadable_note(recording)]
    notes += [_unstored_note(recording), _attached_note(recording), _code_note(recording)]
    notes += [_clamped_note(recording), *reading_notes(recording, launches)]
    notes += [f"memory: {each}." for each in recording.memory.missing] if recording.memory else []
    return (*(note for note in notes if note), *_failures(recording))


def _clamped_note(recording: Recording) -> str | None:
    """Count the events whose duration no clock can give."""
    count = recording.trace.clamped
    if not count:
        return None
    return f"{count} events of the trace have a duration below zero; each counts as no time."


def _leak_note(recording: Recording) -> str | None:
    """Return a note where torch's tag was contradicted, and the phase corrected."""
    graphs = recording.graphs
    leaked = [[node.name for node in graph.nodes if is_leaked(node, graph)] for graph in graphs]
    names = [name for each in leaked for name in each]
    if not names:
        return None
    return (
        f"torch tagged {len(names)} forward nodes of {sum(map(bool, leaked))} graphs with "
        f"autograd_backward ({_first(names)}); the rest of what it says of them contradicts "
        "that, and their phase is forward."
    )


def _note(launches: analysis.Launches, reason: GapReason, settings: Settings) -> str | None:
    rows = flag_rows(launches.gap, lambda gap: gap == reason)
    in_steps = ~np.ma.getmaskarray(launches.step)
    rows &= in_steps | ~in_steps.any()
    count, time_ns = int(np.count_nonzero(rows)), int(launches.duration_ns[rows].sum())
    remedies = [
        text
        for (of, asked), text in _REMAINING_REMEDIES.items()
        if of is reason and asked in settings.options
    ]
    if reason in _USUAL and time_ns < _NOTE_THRESHOLD * int(launches.duration_ns.sum()):
        return None
    message = f"{reason.meaning}; {remedies[0] if remedies else reason.remedy}"
    return f"{reason}: {count} launches ({time_ns / 1000:.1f} us) {message}." if count else None


def _unlinked_note(recording: Recording) -> str | None:
    """Count the backward nodes without a forward node; generated code has none to find."""
    backward = [
        node
        for graph in recording.graphs
        if graph.is_backward and not graph.is_inferred and not graph.is_partly_captured
        for node in graph.nodes
        if differentiates(node, graph)
    ]
    names = [node.name for node in backward if node.lineage.forward_node is None]
    if not names:
        return None
    return (
        f"{len(names)} of {len(backward)} backward nodes ({_first(names)}) differentiate a forward "
        "node that torch's numbers, sources and stacks do not tell; they have no forward_node."
    )


def _unstored_note(recording: Recording) -> str | None:
    """Return a note that a later process will know less."""
    details = _details(recording, GapReason.RECORD_NOT_STORED)
    if not details:
        return None
    return f"{len(details)} records of graphs could not be stored ({_first(details)})."


def _details(recording: Recording, reason: GapReason) -> list[str]:
    return [g.detail for graph in recording.graphs for g in graph.gaps if g.reason == reason]


def _unreadable_note(recording: Recording) -> str | None:
    """Name the stored records that could not be read."""
    details = _details(recording, GapReason.RECORD_UNREADABLE)
    if not details:
        return None
    message = (
        f"{len(details)} stored records cannot be read ({_first(details)}); `profiler-ext cache "
    )
    if "recompile" in recording.settings.options:
        return f"{message}list` tells their state."
    return (
        f"{message}list` tells their state, and a compile with `profiler-ext run --recompile` "
        "replaces them."
    )


def _code_note(recording: Recording) -> str | None:
    message = [graph for graph in recording.graphs if graph.is_inferred]
    if not message:
        return None
    return (
        f"{len(message)} graphs are known only by what their generated code tells, because the "
        "cache was filled without capture: library calls that can be of one line only, and no "
        "generated "
        f"kernel{'' if 'recompile' in recording.settings.options else _AGAIN}."
    )


def _attached_note(recording: Recording) -> str | None:
    attached = [g for g in recording.graphs if g.cache_state is vocabulary.CacheState.ATTACHED]
    if not attached:
        return None
    return (
        f"{len(attached)} graphs were attached from the store by their cache key; their lines are "
        "those of the run that stored them, and other source that gives an equal graph shares "
        "the key."
    )


def _first(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
