"""The explain page: texts and small tables, in order, for any medium."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from profiler_ext.exporters.explain.subjects import Kind
from profiler_ext.exporters.json_output import documents, explained
from profiler_ext.exporters.launch_parts import THE_MODEL
from profiler_ext.exporters.views.formatting import (
    cause_text,
    gap_text,
    kernel_text,
    percent_text,
    short_path,
    short_phase,
    size_text,
    time_text,
)
from profiler_ext.exporters.views.rooflines import roofline_text, savings_text, work_text
from profiler_ext.records.evidence import (
    EagerEvidence,
    ForwardEvidence,
    LineEvidence,
    ShareEvidence,
    SiteEvidence,
)
from profiler_ext.records.memory import LifeReason, MemoryKind
from profiler_ext.records.recording import Settings
from profiler_ext.records.vocabulary import FusionBarrier, Phase, Term

_SHOWN_STEPS = 8
_MIN_KNOWN, _MOSTLY_KNOWN = 0.0005, 0.9
_MAX_CODE_LINES, _MAX_NODES = 40, 6
_KERNEL_STARTS = ("@triton.jit", 'extern "C"')
_PARTS = {  # field to title, and to what its names are
    "fused_with": ("Fused with, in the same launches", "line"),
    "lines": ("Lines", "line"),
    "modules": ("Modules", "module"),
    "ops": ("ATen ops", "ATen op"),
    "callers": ("Called at", "line"),
}
_RULES: tuple[type[Term], ...] = (
    SiteEvidence,
    LineEvidence,
    EagerEvidence,
    ForwardEvidence,
    ShareEvidence,
)


def overview_lines(explanation: explained.Explanation) -> Iterator[str]:
    """Yield the overview: time, phases, roofline, steps."""
    time = explanation.time
    if explanation.no_time_reason is not None:
        yield f"no device time: {explanation.no_time_reason}"
        return
    each = PerStep.of(explanation)
    whole = (
        f", {each.time(time.inclusive_ns)} with what is fused in them"
        if is_part(explanation)
        else ""
    )
    part = percent_text(time.fraction or 0, 1)
    yield (
        f"{each.time(time.duration_ns)} a step, {part} of the device time; "
        f"{each.count(time.launches)} launches a step{whole}"
    )
    phases = [phase for phase in Phase if phase in time.phases_ns]
    yield " · ".join(f"{phase.label} {each.time(time.phases_ns[phase])}" for phase in phases)
    if time.submodules_ns:
        yield f"{each.time(time.submodules_ns)} of it in modules below"
    if time.callees_ns:
        yield f"besides, lines that it calls take {each.time(time.callees_ns)}"
    yield from filter(None, (_roofline_line(explanation), *_step_texts(explanation)))


def is_part(explanation: explained.Explanation) -> bool:
    """Return whether its launches compute something else too."""
    return explanation.time.inclusive_ns != explanation.time.duration_ns


@dataclass(frozen=True, slots=True)
class PerStep:
    """Formats times and counts of a mean step."""

    steps: int

    @classmethod
    def of(cls, explanation: explained.Explanation) -> PerStep:
        """Return the mean step of an explanation."""
        return cls(max(explanation.time.rank_steps, 1))

    def time(self, duration_ns: int) -> str:
        """Return a time of a mean step."""
        return time_text(duration_ns / self.steps)

    def count(self, number: int) -> str:
        """Return a count of a mean step."""
        return f"{number / self.steps:,.1f}".removesuffix(".0")


def _roofline_line(explanation: explained.Explanation) -> str:
    if explanation.roofline is None:
        return ""
    steps = max(explanation.time.rank_steps, 1)
    row = msgspec.structs.asdict(explanation.roofline)
    for name in ("est_bytes", "est_flops", "could_save_ns"):
        row[name] = None if row[name] is None else row[name] / steps
    known = (
        explanation.roofline.known_ns / explanation.time.duration_ns
        if explanation.time.duration_ns
        else 1
    )
    if known < _MIN_KNOWN:
        return "bytes and operations are not known"
    if known < _MOSTLY_KNOWN:
        return f"bytes and operations are known for {percent_text(known, 1)} of its time only"
    saved = savings_text(row)
    parts = (roofline_text(row), work_text(row), saved and f"max saving {saved}")
    return " · ".join(filter(None, parts))


def _step_texts(explanation: explained.Explanation) -> list[str]:
    """Return the time of each step; of many, shortest, median and longest."""
    steps = explanation.steps
    if len(steps) < 2:
        return []
    if len(steps) <= _SHOWN_STEPS:
        ranks = len({step.rank for step in steps}) > 1
        return ["; ".join(f"{_step(step, ranks)}: {time_text(step.duration_ns)}" for step in steps)]
    times = sorted(step.duration_ns for step in steps)
    shown = (times[0], times[(len(times) - 1) // 2], times[-1])
    low, middle, high = map(time_text, shown)
    return [f"a step: {low} at least, {middle} at the median, {high} at most ({len(steps)} told)"]


def _step(step: explained.StepTime, ranks: bool) -> str:
    return f"step {step.step}" + (f" of rank {step.rank}" if ranks else "")


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page."""

    title: str
    heads: tuple[str, ...] = ()  # of the table; the first column is names, the others are numbers
    rows: tuple[tuple[str, ...], ...] = ()
    texts: tuple[str, ...] = ()  # lines of text below
    code: str = ""  # generated code below
    keeps_end: bool = False  # cut long names in their middle, not at their end


@dataclass(frozen=True, slots=True)
class Page:
    """The explain page."""

    title: str
    code: str  # the text of the line
    texts: tuple[str, ...]  # the overview
    sections: tuple[Section, ...] = field(default=())  # without empty ones


def page(explanation: explained.Explanation, settings: Settings) -> Page:
    """Return the page of an explanation."""
    sections = (
        each for each in _sections(explanation, settings) if each.rows or each.texts or each.code
    )
    subject = explanation.subject
    about = subject.module_class or (subject.function and f"in {subject.function}")
    title = " · ".join(filter(None, (subject.name, subject.kind, about)))
    return Page(title, subject.code or "", tuple(overview_lines(explanation)), tuple(sections))


def _sections(explanation: explained.Explanation, settings: Settings) -> Iterator[Section]:
    whole = explanation.time.duration_ns
    yield Section("Recommendations", texts=tuple(map(_finding, explanation.findings)))
    yield from _changes(explanation)
    yield _kernel_section(explanation)
    for name in _PARTS:
        rows: Sequence[explained.PartRow] = getattr(explanation, name)
        of = sum(row.duration_ns for row in rows) if name == "fused_with" else whole
        if not (name in ("modules", "lines") and _is_redundant(rows, explanation)):
            yield _part_section(explanation, name, of, settings)
        if name == "fused_with":
            yield _not_fused_section(explanation, settings)
    on_gpu = [each for each in explanation.memory if each.device is not None]
    yield from (_memory_section(each, settings) for each in on_gpu or explanation.memory)
    yield Section("The device waited while the CPU was there", texts=tuple(_idle(explanation)))
    yield Section("Attribution method", texts=tuple(_evidence(explanation)))
    yield Section("Unattributed", texts=tuple(_gaps(explanation)))
    if explanation.generated:
        yield _code_section(explanation)


def _changes(explanation: explained.Explanation) -> Iterator[Section]:
    """Yield the section about another run, if there is one."""
    if explanation.against is not None:
        name = ", ".join(run.name for run in explanation.against.base.runs)
        notes = (f"note: {note}" for note in explanation.against.notes)
        yield Section(f"Since {name}", texts=(*explanation.against.sentences, *notes))


def _is_redundant(rows: Sequence[explained.PartRow], explanation: explained.Explanation) -> bool:
    """Return whether a table would only repeat the subject."""
    return (
        len(rows) == 1
        and explanation.subject.kind == Kind.MODULE
        and (rows[0].module == explanation.subject.module and rows[0].file is None)
    )


def _kernel_section(explanation: explained.Explanation) -> Section:
    rows = tuple(_kernel(row, explanation) for row in explanation.kernels)
    whole = ("kernel total",) if is_part(explanation) else ()
    heads = ("kernel", "time/step", "%", *whole, "launches", "median", "kind", "min", "max")
    return Section("Kernels", heads, rows, _more(explanation, "kernels"), keeps_end=True)


def _kernel(row: explained.KernelRow, explanation: explained.Explanation) -> tuple[str, ...]:
    each = PerStep.of(explanation)
    return (
        kernel_text({"kernel": row.kernel, "name": row.name}),
        each.time(row.duration_ns),
        percent_text(row.duration_ns, explanation.time.duration_ns),
        *((each.time(row.total_ns),) if is_part(explanation) else ()),
        each.count(row.launches),
        time_text(row.median_ns),
        row.kind,
        time_text(row.min_ns),
        time_text(row.max_ns),
    )


def _part_section(
    explanation: explained.Explanation, name: str, whole_ns: int, settings: Settings
) -> Section:
    rows: Sequence[explained.PartRow] = getattr(explanation, name)
    phases = [phase for phase in Phase if any(phase in row.phases_ns for row in rows)]
    title, first = _PARTS[name]
    heads = (first, "time/step", "%", *map(short_phase, phases))
    each = PerStep.of(explanation)
    cells = tuple(
        (
            _named(row, settings),
            each.time(row.duration_ns),
            percent_text(row.duration_ns, whole_ns),
            *(each.time(row.phases_ns[p]) if p in row.phases_ns else "" for p in phases),
        )
        for row in rows
    )
    return Section(title, heads, cells, _more(explanation, name))


def _not_fused_section(explanation: explained.Explanation, settings: Settings) -> Section:
    each = PerStep.of(explanation)
    rows = tuple(
        (
            f"{'stores for' if row.is_stored else 'loads from'} {_other_side(row, settings)}",
            each.time(row.could_save_ns) if row.could_save_ns else "",
            f"{row.read_bytes / 1e6:.2f}",
            FusionBarrier(row.barrier).label,
        )
        for row in explanation.not_fused
    )
    heads = ("Not fused with", "max saving", "MB", "because of")
    cut = [cut for cut in explanation.cuts if cut.where == "not_fused"]
    more = [f"({each.total - each.kept} more)" for each in cut]
    tuned = (row for row in explanation.not_fused if row.autotuned)
    timed = dict.fromkeys(r.reason for r in tuned if r.barrier == FusionBarrier.LIBRARY_CALL)
    texts = (*timed, *more)
    return Section("Buffers exchanged with other kernels", heads, rows, texts, keeps_end=True)


def _memory_section(memory: explained.MemoryFacts, settings: Settings) -> Section:
    of = "the CPU" if memory.device is None else f"device {memory.device}"
    text = (
        f"{size_text(memory.peak_bytes)} of {size_text(memory.device_peak_bytes)} "
        f"({percent_text(memory.peak_bytes, memory.device_peak_bytes)}) at the peak, in step "
        f"{memory.step}, {Phase(memory.at_phase).label}; the step allocates "
        f"{size_text(memory.allocated_bytes)} there"
    )
    rows = tuple(
        (
            _memory_kind(row),
            size_text(row.peak_bytes),
            f"{row.blocks:,}",
            size_text(row.allocated_bytes),
            "" if row.lifetime_ns is None else time_text(row.lifetime_ns),
        )
        for row in memory.rows
    )
    heads = ("kind, allocated in", "at peak", "blocks", "a step", "lifetime")
    reasons = (_memory_reason(each, settings) for each in memory.reasons if each.reason)
    return Section(f"Memory of {of}", heads, rows, (text, *reasons))


def _memory_reason(reason: explained.MemoryReason, settings: Settings) -> str:
    """Return why a part is alive, and what for."""
    text = f"{size_text(reason.peak_bytes)} at the peak: {LifeReason(reason.reason or '').label}"
    if reason.needed_by:
        at = "" if reason.needed_file is None else f"{short_path(reason.needed_file, settings)}"
        line = f" ({at}:{reason.needed_line})" if at else ""
        return f"{text}; the largest for {reason.needed_by}{line}"
    return f"{text}; the largest by {reason.held_by}" if reason.held_by else text


def _memory_kind(row: explained.MemoryRow) -> str:
    """Return the kind, and the phase where it is known."""
    phase = Phase(row.phase)
    return MemoryKind(row.kind).label + (f", {phase.label}" if phase is not Phase.OTHER else "")


def _other_side(row: explained.NotFusedRow, settings: Settings) -> str:
    line = "" if row.file is None else f"{short_path(row.file, settings)}:{row.line}"
    kernel = kernel_text({"kernel": row.kernel, "name": row.kernel})
    return " · ".join(filter(None, (line, row.module, kernel)))


def _named(row: explained.PartRow, settings: Settings) -> str:
    line = "" if row.file is None else f"{short_path(row.file, settings)}:{row.line}"
    gap = f"({gap_text(row.gap)})" if row.gap else ""
    module = THE_MODEL if row.module == "" else row.module
    if row.modules > 1:
        module = f"{module} ({row.modules} modules)"
    parts = (line or gap, module, row.aten_op, row.code and row.code.strip())
    return " · ".join(filter(None, parts)) or "(no source line)"


def _more(explanation: explained.Explanation, name: str) -> tuple[str, ...]:
    """Return how many rows are left out."""
    cuts = [cut for cut in explanation.cuts if cut.where == name]
    each = PerStep.of(explanation)
    return tuple(
        f"({cut.total - cut.kept} more: {each.time(cut.left_out_ns or 0)} a step)" for cut in cuts
    )


def _finding(entry: documents.FindingEntry) -> str:
    part = (
        percent_text(entry.est_saving_ns, entry.total_ns)
        if entry.saving_per == "step"
        else entry.saving_per
    )
    saving = f"{time_text(entry.est_saving_ns)} {part}"
    return f"{saving} · {entry.summary} ({entry.rule}) · try: {entry.remedy}"


def _idle(explanation: explained.Explanation) -> Iterator[str]:
    each = PerStep.of(explanation)
    for row in explanation.idle:
        during = f" while the CPU ran {row.cpu_activity}" if row.cpu_activity else ""
        yield f"{each.time(row.duration_ns)} a step: {cause_text(row.cause)}{during}"


def _evidence(explanation: explained.Explanation) -> Iterator[str]:
    whole = explanation.time.duration_ns
    rules = {
        "launches tied": explanation.site_evidence_ns,
        "source line": explanation.line_evidence_ns,
        "shares of kernels": explanation.share_evidence_ns,
        "backward to forward": explanation.forward_evidence_ns,
    }
    for what, times in rules.items():
        parts = (f"{_rule(rule)} {percent_text(time, whole)}" for rule, time in times.items())
        if times:
            yield f"{what}: {', '.join(parts)}"


def _rule(rule: str) -> str:
    for vocabulary in _RULES:
        if rule in tuple(vocabulary):
            return f"{vocabulary(rule).label} ({rule})"
    return rule


def _gaps(explanation: explained.Explanation) -> Iterator[str]:
    for gap in explanation.own_gaps:
        part = percent_text(gap.fraction or 0, 1)
        yield f"of it {part}: {gap.description} ({gap.gap}); {gap.remedy}"
    if explanation.coverage.gaps:
        gaps = (
            f"{gap.gap} {percent_text(gap.fraction or 0, 1)}" for gap in explanation.coverage.gaps
        )
        yield f"of the whole session's busy time: {', '.join(gaps)}"


def _code_section(explanation: explained.Explanation) -> Section:
    first, *others = explanation.generated
    text = first.text.splitlines()
    starts = (at for at, line in enumerate(text) if line.startswith(_KERNEL_STARTS))
    lines = text[next(starts, 0) :]  # without the imports
    left = len(lines) - _MAX_CODE_LINES
    texts = [f"({left} more lines: --format json)"] if left > 0 else []
    if first.other_nodes:
        listed = ", ".join(_node(node) for node in first.own_nodes[:_MAX_NODES])
        more = f", and {len(first.own_nodes) - _MAX_NODES} more"
        more = more if len(first.own_nodes) > _MAX_NODES else ""
        rest = f"{first.other_nodes} nodes of others"
        texts.append(f"its part, in the first launch: {listed}{more}; besides, {rest}")
    if others:
        listed = ", ".join(each.kernel for each in others)
        texts.append(f"the code of {listed} is in --format json")
    code = "\n".join(lines[:_MAX_CODE_LINES])
    return Section(f"Generated code of {first.kernel}", texts=tuple(texts), code=code)


def _node(node: explained.NodeFacts) -> str:
    return " ".join(filter(None, (node.name, node.target, *node.outputs)))
