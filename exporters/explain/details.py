"""What is known of a line, module or kernel besides its time.

Code, FX nodes, roofline, findings, gaps, and why it has no time: by the compiled graphs and the
recorded stacks. Where neither names the line, nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from profiler_ext.exporters import sources, tables
from profiler_ext.exporters.explain import sums
from profiler_ext.exporters.explain.subjects import Kind, SelectedShares, Subject, subject_label
from profiler_ext.exporters.json_output import answers, documents
from profiler_ext.exporters.json_output.explained import (
    AutotunedFacts,
    ChoiceRow,
    Generated,
    IdleRow,
    MemoryFacts,
    MemoryReason,
    MemoryRow,
    NodeFacts,
    NotFusedRow,
    Roofline,
)
from profiler_ext.exporters.tables.rows import roofline_columns_by_key
from profiler_ext.exporters.views import formatting, modules, summary
from profiler_ext.exporters.views.summary import SessionLike
from profiler_ext.memory.over_time import highest
from profiler_ext.memory.peak import StepPeak
from profiler_ext.records import events, provenance, share_sums
from profiler_ext.records.analysis import Analysis, Place
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.memory import CPU
from profiler_ext.rooflines.intermediates import PassedBuffer, passed_buffers
from profiler_ext.rooflines.peaks import PEAKS
from profiler_ext.rooflines.rooflines import rooflines

_MAX_KERNELS = 3  # whose generated code is shown
_MAX_TARGETS = 4
_OF_LARGEST = ("needed_by", "needed_file", "needed_line", "held_by")
_MEMORY_SUMS = ("peak_bytes", "blocks", "allocated_bytes", "allocations")
_ADDITIVE = ("est_bytes", "est_flops", "roofline_ns", "could_save_ns")


def kernel_nodes(each: SelectedShares, kernel: str) -> tuple[list[NodeFacts], int]:
    """Return a subject's nodes in a kernel's first launch, and the number of other nodes."""
    first = _first_launch(each, kernel)
    if first is None:
        return [], 0
    graph = _graph(each, first)
    known = {} if graph is None else {node.name: node for node in graph.nodes}
    own, others = (_names(each, rows, first) for rows in (each.own, each.others))
    return [_node(name, known.get(name)) for name in own], len(others)


def _first_launch(each: SelectedShares, kernel: str) -> int | None:
    of_kernel = each.analysis.launches.kernel.where(kernel)[each.launches]
    rows = each.launches[of_kernel]
    return int(rows[0]) if len(rows) else None


def _graph(each: SelectedShares, launch: int) -> provenance.GraphInstance | None:
    graph = each.analysis.launches.graph[launch]
    return None if graph is np.ma.masked else each.analysis.recording.graphs[int(graph)]


def _names(each: SelectedShares, rows: events.Ints, launch: int) -> list[str]:
    places = each.place_of(rows[each.launch_of(rows) == launch]).tolist()
    names = (each.analysis.places[place].node for place in places)
    return [name for name in dict.fromkeys(names) if name is not None]


def _node(name: str, known: provenance.FxNode | None) -> NodeFacts:
    if known is None:
        return NodeFacts(name=name, target="", outputs=[])
    outputs = [
        f"{spec.dtype.removeprefix('torch.')}[{', '.join(map(str, spec.size))}]"
        for spec in known.outputs
    ]
    return NodeFacts(name=name, target=known.target, outputs=outputs)


@dataclass(frozen=True, slots=True)
class ExplainContext:
    """What an explanation is made of."""

    session: SessionLike  # a session, or several ranks
    subject: Subject
    ranks: list[SelectedShares]  # the subject's shares on each rank


def generated(about: ExplainContext, kernels: Sequence[str]) -> list[Generated]:
    """Return the code of the largest kernels whose module the session keeps."""
    named, collected = list(dict.fromkeys(kernels)), dict[str, Generated]()
    for each in about.ranks:
        missing = [kernel for kernel in named if kernel not in collected]
        collected |= {
            code.kernel: code
            for code in islice(_codes(each, missing), _MAX_KERNELS - len(collected))
        }
    return [collected[kernel] for kernel in named if kernel in collected]


def _codes(each: SelectedShares, kernels: Sequence[str]) -> Iterator[Generated]:
    """Yield the code of kernels whose module is kept; reads modules as needed."""
    kept = sources.recorded_modules(each.analysis.recording)
    read: dict[str, dict[str, str]] = {}
    for kernel in kernels:
        first = _first_launch(each, kernel)
        graph = None if first is None else _graph(each, first)
        path = None if graph is None else graph.output_module
        if path is None or path not in kept:
            continue
        if path not in read:
            read[path] = sources.kernel_sources(kept[path])
        if kernel in read[path]:
            own, others = kernel_nodes(each, kernel)
            yield Generated(
                kernel=kernel,
                own_nodes=own,
                other_nodes=others,
                module=path,
                text=read[path][kernel],
            )


def gaps(about: ExplainContext, duration_ns: int) -> list[documents.GapRow]:
    """Return its device time without attribution, by reason."""
    reasons = sums.times_by_place(about.ranks, lambda place: place.gap)
    known = {gap: time for gap, time in reasons.items() if gap in tuple(GapReason)}
    return [answers.gap_row(gap, time, duration_ns) for gap, time in known.items()]


def findings(about: ExplainContext) -> list[documents.FindingEntry]:
    """Return the findings about it."""
    return [
        answers.finding_entry(f)
        for f in about.session.recommendations.ranked
        if _touches(f.location, about)
    ]


def _touches(where: Any, about: ExplainContext) -> bool:
    """Return whether a finding is about it, a module below it, or its kernel."""
    subject = about.subject
    if subject.kind is Kind.LINE:
        return (where.file, where.line) == (subject.name, subject.line)
    if subject.kind is Kind.MODULE:
        return where.module is not None and modules.is_below(where.module, subject.name)
    return bool(where.kernel == subject.name)


def not_fused(about: ExplainContext) -> list[NotFusedRow]:
    """Return the kernels that its kernels exchange buffers with, the largest saving first."""
    folds = modules.folded_modules(about.session.analyses)
    merged: dict[Any, list[PassedBuffer]] = {}
    for is_stored, passed in (pair for each in about.ranks for pair in _exchanged(each)):
        other = passed.reader if is_stored else passed.writer
        place = other.place or Place()
        module = None if place.module is None else folds.of(place.module)[0]
        named = (other.site.kernel, place.file, place.line, module)
        merged.setdefault((is_stored, *named, passed.barrier, passed.reason), []).append(passed)
    fields = ("is_stored", "kernel", "file", "line", "module", "barrier", "reason")
    rows = (
        NotFusedRow(
            **dict(zip(fields, key, strict=True)),
            buffers=len(own),
            read_bytes=sum(each.passed.read_bytes for each in own),
            could_save_ns=_sum_known(each.could_save_ns for each in own),
            autotuned=[_autotuned_facts(*each) for each in own[0].autotuned],
        )
        for key, own in merged.items()
    )
    return sorted(rows, key=lambda row: -(row.could_save_ns or 0))


def _autotuned_facts(site: provenance.CallSite, tuned: provenance.Autotuned) -> AutotunedFacts:
    choices = [
        ChoiceRow(name=each.name, kind=each.kind, config=each.config, duration_ns=each.duration_ns)
        for each in tuned.choices
    ]
    return AutotunedFacts(
        kernel=site.kernel,
        choices=choices,
        chosen=tuned.chosen,
        others=tuned.others,
        is_cached=tuned.is_cached,
    )


def _exchanged(each: SelectedShares) -> Iterator[tuple[bool, PassedBuffer]]:
    """The buffers that its launches store, and the others that they load."""
    for passed in passed_buffers(each.analysis):
        for is_stored, side in ((True, passed.writer), (False, passed.reader)):
            if np.isin(side.launches, each.launches).any():
                yield is_stored, passed
                break


def _sum_known(amounts: Iterable[int | None]) -> int | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def idle(about: ExplainContext) -> list[IdleRow]:
    """Return the device's idle time while the CPU was at a line, the longest first."""
    if about.subject.kind is not Kind.LINE:
        return []
    line = (about.subject.name, about.subject.line)
    named = ("cause", "cpu_activity", "duration_ns")
    return [
        IdleRow(**{name: row[name] for name in named})
        for row in summary.records(about.session.columns("idle_by_line"))
        if line in ((row["file"], row["line"]), (row["user_file"], row["user_line"]))
    ]


def memory(about: ExplainContext) -> list[MemoryFacts]:
    """Return its part of each device's memory, where it has one, in the step of the peak."""
    return [
        facts
        for analysis in about.session.analyses
        for peak in highest(analysis)
        if (facts := _memory_of(about.subject, analysis, peak)).rows
    ]


def _memory_of(subject: Subject, analysis: Analysis, peak: StepPeak) -> MemoryFacts:
    device = None if peak.device == CPU else peak.device
    own = [
        row
        for row in summary.records(tables.by_memory(analysis, step=peak.step))
        if row["device"] == device and _is_memory_of(row, subject)
    ]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in own:
        groups.setdefault((row["kind"], row["phase"]), []).append(row)
    rows = [
        MemoryRow(
            kind=kind,
            phase=phase,
            **{name: sum(row[name] for row in of) for name in _MEMORY_SUMS},
            lifetime_ns=max((row["lifetime_ns"] or 0 for row in of), default=0) or None,
        )
        for (kind, phase), of in groups.items()
    ]
    return MemoryFacts(
        rank=analysis.recording.settings.rank,
        device=device,
        step=peak.step,
        device_peak_bytes=peak.peak_bytes,
        peak_bytes=sum(row.peak_bytes for row in rows),
        allocated_bytes=sum(row.allocated_bytes for row in rows),
        at_phase=peak.place.phase,
        rows=sorted(rows, key=lambda row: (-row.peak_bytes, -row.allocated_bytes)),
        reasons=_memory_reasons(own),
    )


def _memory_reasons(rows: Iterable[dict[str, Any]]) -> list[MemoryReason]:
    """Return why memory is alive at the peak, the largest part first."""
    groups: dict[str | None, list[dict[str, Any]]] = {}
    for row in rows:
        if row["peak_bytes"]:
            groups.setdefault(row["life_reason"], []).append(row)
    reasons = (
        MemoryReason(
            reason=reason,
            peak_bytes=sum(row["peak_bytes"] for row in of),
            **{name: of[0][name] for name in _OF_LARGEST},  # rows are ordered by size
        )
        for reason, of in groups.items()
    )
    return sorted(reasons, key=lambda each: -each.peak_bytes)


def _is_memory_of(row: dict[str, Any], subject: Subject) -> bool:
    if subject.kind is Kind.LINE:
        return (row["file"], row["line"]) == (subject.name, subject.line)
    if subject.kind is Kind.MODULE:
        return row["module"] is not None and modules.is_below(row["module"], subject.name)
    return bool(row["kernel"] == subject.name)


def roofline(ranks: Sequence[SelectedShares]) -> Roofline | None:
    """Return its roofline; of several ranks the sums, without rates."""
    collected = [_achieved(each) for each in ranks if len(each.own)]
    if not collected:
        return None
    known_ns = sum(map(_known_ns, ranks))
    if len(collected) == 1:
        return Roofline(known_ns=known_ns, **collected[0])
    columns: dict[str, Any] = dict.fromkeys(collected[0])
    for name in _ADDITIVE:
        known = [each[name] for each in collected if each[name] is not None]
        columns[name] = sum(known) if known else None
    return Roofline(known_ns=known_ns, **columns)


def _achieved(each: SelectedShares) -> dict[str, Any]:
    whole = share_sums.KeyedShares(each.analysis, each.own, np.zeros(len(each.own), np.int64), 1)
    columns = roofline_columns_by_key(whole, PEAKS)
    (row,) = summary.records(tables.Table(columns))
    return row


def _known_ns(each: SelectedShares) -> int:
    estimates = rooflines(each.analysis, PEAKS)
    unknown = np.ma.getmaskarray(estimates.bytes) & np.ma.getmaskarray(estimates.flops)
    return int(each.durations(each.own[~unknown[each.launch_of(each.own)]]).sum())


def no_time_reason(
    subject: Subject, analyses: Sequence[Analysis], callees_ns: float, idle_ns: float
) -> str:
    """Return why a subject has no device time in the profiled steps."""
    if subject.kind is not Kind.LINE:
        return f"the {subject.kind} has no launch in the profiled steps"
    if callees_ns:
        spent = formatting.time_text(callees_ns)
        return f"it launches nothing itself: it calls lines that do, which took {spent} a step"
    nodes = [pair for each in analyses for pair in _nodes(each, subject)]
    if nodes:
        computed = {name for graph, _ in nodes for site in graph.call_sites for name in site.nodes}
        targets = dict.fromkeys(node.target for _, node in nodes)
        listed = ", ".join(
            [*list(targets)[:_MAX_TARGETS], *["..."] * (len(targets) > _MAX_TARGETS)]
        )
        if any(node.name in computed for _, node in nodes):
            return f"its ops ({listed}) are in compiled kernels that no profiled step launched"
        return (
            f"no kernel computes its ops ({listed}): they only change how memory is seen, or the "
            "compiler took them away"
        )
    if idle_ns:
        return (
            "it launches nothing: while the CPU was there the device waited for "
            f"{formatting.time_text(idle_ns)} a step"
        )
    return _nearest_lines_text(subject, analyses[0])


def _nodes(
    analysis: Analysis, subject: Subject
) -> Iterator[tuple[provenance.GraphInstance, provenance.FxNode]]:
    for graph in analysis.recording.graphs:
        for node in graph.nodes:
            stack = node.lineage.stack
            if any((frame.file, frame.line) == (subject.name, subject.line) for frame in stack):
                yield graph, node


def _nearest_lines_text(subject: Subject, analysis: Analysis) -> str:
    of_file = (place.line for place in analysis.places if place.file == subject.name)
    known = {line for line in of_file if line is not None}
    lines = sorted(known, key=lambda line: (abs(line - subject.line), line))
    file = formatting.short_path(subject.name, analysis.recording.settings)
    nearest = [
        subject_label(Subject(Kind.LINE, subject.name, line), analysis) for line in lines[:3]
    ]
    return (
        f"nothing that ran in the profiled steps names it: it launched nothing, or did not run; "
        f"the nearest lines of {file} with time are {', '.join(nearest)}"
    )
