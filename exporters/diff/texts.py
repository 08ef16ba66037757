"""The texts of a comparison, shared by all formats: changes, rows, fusions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from profiler_ext.comparison import matching, memory, notes, records, sides
from profiler_ext.comparison.comparison import Basis, Comparison
from profiler_ext.exporters.views.formatting import (
    breakdown_label,
    cause_text,
    gap_text,
    middle,
    short_kernel,
    short_phase,
    signed_time_text,
    size_text,
    time_text,
)
from profiler_ext.records.compiles import CompileKind
from profiler_ext.records.memory import MemoryKind
from profiler_ext.records.vocabulary import Phase, Scope

MAX_OPS = 8
_MAX_KERNEL_CHARS = 40
_STEPS = {Basis.TRAINING: "step in training", Basis.RECORDED: "step as recorded"}
_ORDER = (
    *(records.Verdict.SLOWER, records.Verdict.FASTER, records.Verdict.NEW, records.Verdict.REMOVED),
    *(
        records.Verdict.TOO_FEW,
        records.Verdict.NOT_COMPARABLE,
        records.Verdict.NOT_SIGNIFICANT,
        records.Verdict.EQUAL,
    ),
)
_FALLBACK_LABELS = {
    "line": "no source line",
    "module": "no module",
    "layer": "no module",
    "op": "no op",
    "kernel": "no kernel",
}


def names_text(by: str, row: records.Row) -> str:
    """Return a row's name; both, where the sides' names differ."""
    base, head = (None if each is None else name_text(by, each) for each in (row.base, row.head))
    if base is None or head is None or base == head:
        return head or base or ""
    if by == "kernel":  # names are long: the base's is in the details
        return head
    old, new = row.base, row.head
    if by in ("line", "compile") and old and new and old.file == new.file:
        return f"{base} -> :{new.line}"
    return f"{base} -> {head}"


def name_text(by: str, subject: records.Subject) -> str:
    """Return a subject's name in a table, or why it has none."""
    if by == "breakdown":
        if subject.account == records.Account.STEPS_OVERLAP:
            return records.Account.STEPS_OVERLAP.label
        if subject.account == records.Account.IDLE:
            return f"{Scope.IDLE.label}: {cause_text(subject.cause or '')}"
        return breakdown_label(
            {"scope": subject.scope, "level": subject.level, "category": subject.category}
        )
    if subject.account not in (records.Account.DEVICE, records.Account.IDLE):
        return f"({records.Account(subject.account).label})"
    idle = f"idle: {cause_text(subject.cause)}" if subject.cause else ""
    name = own_name(by, subject)
    if idle:
        return f"{name} ({idle})" if name else f"({idle})"
    why = gap_text(subject.gap) if subject.gap else _FALLBACK_LABELS.get(by, "unknown")
    return name or f"({why})"


def own_name(by: str, subject: records.Subject) -> str:
    """Return a subject's name in a table; empty where it has none."""
    if by in ("line", "compile") and subject.file is not None:
        function = f" {subject.function}" if by == "compile" and subject.function else ""
        return f"{subject.file}:{subject.line}{function}{_compile_kind(by, subject)}"
    if by == "compile":
        return f"{subject.function or 'no function'}{_compile_kind(by, subject)}"
    if by in ("module", "layer") and subject.module is not None:
        return subject.module or "(the model itself)"
    if by == "phase":
        return short_phase(Phase(subject.phase)) if subject.phase else ""
    if by == "kernel":
        return short_kernel(subject.kernel or "")
    return (subject.aten_op or "") if by == "op" else ""


def _compile_kind(by: str, subject: records.Subject) -> str:
    return f" ({CompileKind(subject.kind).label})" if by == "compile" and subject.kind else ""


@dataclass(frozen=True, slots=True)
class RowTexts:
    """A row as texts."""

    base: str  # time of a step; empty where the side has none
    head: str
    delta: str  # signed
    percent: str  # the difference over the base
    verdict: str
    name: str  # both names, where the sides' differ
    code: str  # the line's text, the module's class, or empty
    details: tuple[str, ...]  # a few words each


def side_text(side: sides.Side) -> str:
    """Return a side in one line: its runs, steps, ranks, devices, torch and command."""
    first = side.runs[0]
    steps = sum(run.steps for run in side.runs)
    parts = [
        ", ".join(run.name for run in side.runs),
        f"{len(side.runs)} runs" if len(side.runs) > 1 else "",
        f"{steps} step{'s' if steps != 1 else ''}",
        _ranks_text(first),
        ", ".join(dict.fromkeys(name for run in side.runs for name in run.devices)),
        f"torch {first.torch_version}" if first.torch_version else "",
        " ".join(first.command),
    ]
    return " · ".join(filter(None, parts))


def total_texts(comparison: Comparison) -> Iterator[str]:
    """Yield the overall changes: step time and device time."""
    yield step_text(comparison)
    yield f"device time, as recorded: {change_text(comparison.device)}"
    rows = [row for row in comparison.table("phase").rows if row.subject.phase]
    if len(rows) > 1 and comparison.device.verdict is not records.Verdict.EQUAL:
        yield ", ".join(_phase_text(row) for row in rows)
    if comparison.memory is not None:
        yield memory_text(comparison.memory)


def memory_text(compared: memory.ComparedMemory) -> str:
    """Return the change of the peak of memory."""
    base, head = compared.base_bytes, compared.head_bytes
    sizes = f"peak memory: {size_text(base)} -> {size_text(head)}"
    if base == head:
        return f"{sizes}, equal"
    part = f" ({compared.delta_bytes / base:+.1%})" if base else ""
    return f"{sizes}, {signed_size(compared.delta_bytes)}{part}"


def memory_rows(compared: memory.ComparedMemory) -> list[tuple[str, str, str, str, str]]:
    """Return the rows that changed as texts: base, head, change, name and code."""
    return [
        (
            size_text(row.base_bytes) if row.base else "",
            size_text(row.head_bytes) if row.head else "",
            signed_size(row.delta_bytes),
            _memory_name(row),
            row.subject.code or "",
        )
        for row in compared.rows
        if row.delta_bytes
    ]


def _memory_name(row: memory.MemoryRow) -> str:
    if row.subject.file is None:
        return f"({MemoryKind(row.subject.kind or '').label})"
    names = [own_name("line", each) for each in (row.base, row.head) if each]
    return " -> ".join(dict.fromkeys(names))


def signed_size(size_bytes: float) -> str:
    """Return a signed size: ``+1.25 MiB``."""
    return f"{'-' if size_bytes < 0 else '+'}{size_text(abs(round(size_bytes)))}"


def step_text(comparison: Comparison) -> str:
    """Return the change of step time, and which steps it is of."""
    return f"{_STEPS[comparison.step.basis]}: {change_text(comparison.step.change)}"


def _phase_text(row: records.Row) -> str:
    change = row.change
    base, head = map(signed_time_text, (change.base_per_step_ns, change.head_per_step_ns))
    part = percent_of(change) or change.verdict.label
    return f"{names_text('phase', row)} {base} -> {head} ({part})"


def change_text(change: records.Change) -> str:
    """Return a change in words, with its interval."""
    times = f"{time_text(change.base_per_step_ns)} -> {time_text(change.head_per_step_ns)}"
    if change.verdict is records.Verdict.EQUAL:
        return f"{times}, equal"
    percent = f" ({percent_of(change)})" if change.fraction is not None else ""
    interval = f", 95%: {interval_text(change)}" if change.interval else ""
    return f"{times}, {signed(change.delta_ns)}{percent}{interval}: {change.verdict.label}"


def count_text(rows: Sequence[records.Row]) -> str:
    """Return the counts of verdicts."""
    occurrences = Counter(row.change.verdict for row in rows)
    verdict_counts = [
        f"{occurrences[verdict]} {verdict.label}" for verdict in _ORDER if occurrences[verdict]
    ]
    noise = [
        row.change.delta_ns for row in rows if row.change.verdict is records.Verdict.NOT_SIGNIFICANT
    ]
    text = ", ".join(verdict_counts) or "no rows"
    return f"{text} (together {signed(sum(noise))})" if noise else text


def shown_rows(rows: Sequence[records.Row]) -> tuple[records.Row, ...]:
    """Return the rows to show: all but those of equal time or not significant."""
    hidden = (records.Verdict.NOT_SIGNIFICANT, records.Verdict.EQUAL)
    return tuple(row for row in rows if row.change.verdict not in hidden)


def device_rows(table: records.Table) -> tuple[records.Row, ...]:
    """Return the rows of device time; of the breakdown, all."""
    is_breakdown = table.by == "breakdown"
    return tuple(
        r for r in table.rows if is_breakdown or r.subject.account == records.Account.DEVICE
    )


def idle_rows(table: records.Table) -> tuple[records.Row, ...]:
    """Return the rows of idle time at lines; the breakdown has the rest."""
    rows = (row for row in table.rows if row.subject.account == records.Account.IDLE)
    return tuple(row for row in rows if row.subject.file is not None)


def row_texts(comparison: Comparison, table: records.Table, row: records.Row) -> RowTexts:
    """Return a row as texts."""
    change = row.change
    return RowTexts(
        base=signed_time_text(change.base_per_step_ns) if row.base else "",
        head=signed_time_text(change.head_per_step_ns) if row.head else "",
        delta=signed(change.delta_ns),
        percent=percent_of(change) if row.base and row.head else "",
        verdict=change.verdict.label,
        name=names_text(table.by, row),
        code=row.subject.code or row.subject.module_class or "",
        details=tuple(_details(comparison, table, row)),
    )


def details_text(texts: RowTexts) -> str:
    """Return a row's details in one line."""
    return " · ".join(texts.details)


def kernel_text(kernel: records.FusedKernel, steps: int) -> str:
    """Return what launches compute, and their time of a step."""
    at: dict[str, list[str]] = {}
    for op in kernel.ops[:MAX_OPS]:
        phase = short_phase(Phase(op.phase)) if op.phase else ""
        place = f"{own_name('line', op) or 'no line'} {phase}".strip()
        at.setdefault(place, []).append(matching.op_name(op.aten_op or "?"))
    ops = "; ".join(f"{', '.join(sorted(set(names)))} ({place})" for place, names in at.items())
    left = len(kernel.ops) - MAX_OPS
    more = f"; {left} more" if left > 0 else ""
    count = f"{kernel.launches / max(steps, 1):.3g}"
    time = time_text(kernel.duration_ns / max(steps, 1))
    launches = "1 launch" if count == "1" else f"{count} launches"
    return f"{time}, {launches}: {ops}{more}  {_kernels_text(kernel)}"


def _kernels_text(kernel: records.FusedKernel) -> str:
    first, *others = (
        middle(short_kernel(name), _MAX_KERNEL_CHARS) for name in kernel.kernels or ("?",)
    )
    return f"[{first}, {len(others)} more]" if others else f"[{first}]"


def signed(time_ns: float) -> str:
    """Return a signed time: ``+1.20 ms``."""
    return f"{'-' if time_ns < 0 else '+'}{time_text(abs(time_ns))}"


def percent_of(change: records.Change) -> str:
    """Return a change over the base: ``+5.4%``; empty where the base has no time."""
    if change.fraction is None:
        return ""
    part = 100 * change.fraction * (-1 if change.base_ns < 0 else 1)
    return f"{part:+.1f}%" if abs(part) < 1000 else f"{1 + change.fraction:,.0f}x"


def interval_text(change: records.Change) -> str:
    """Return the interval of a change: ``+1.10 ms to +1.30 ms``."""
    if change.interval is None:
        return ""
    return f"{signed(change.interval.low_ns)} to {signed(change.interval.high_ns)}"


def _details(comparison: Comparison, table: records.Table, row: records.Row) -> Iterator[str]:
    change = row.change
    if row.match not in (records.Match.SAME, records.Match.NEW, records.Match.REMOVED):
        yield row.match.label
    if change.interval is not None and change.is_change:
        yield f"95%: {interval_text(change)}"
    if table.by == "kernel":
        yield from _shape_texts(comparison, row)
    if notes.devices_differ(comparison) and row.subject.account == records.Account.DEVICE:
        yield f"part of device time: {_parts_text(comparison, change)}"
    if row.modules and table.by not in ("module", "layer"):
        yield ", ".join(module or "(the model itself)" for module in row.modules)
    if table.by != "phase" and (phases := _phases_text(row)):
        yield phases
    before = f"{change.base_launches / change.base_steps:.4g}"
    now = f"{change.head_launches / change.head_steps:.4g}"
    if before != now and row.subject.account == records.Account.DEVICE:
        yield f"launches a step: {before} -> {now}"
    if row.match is records.Match.EDITED and row.base is not None:
        yield f"was: {row.base.code}"
    is_other_kernel = row.match in (
        records.Match.SAME_WORK,
        records.Match.SIMILAR_WORK,
        records.Match.RENAMED,
    )
    if is_other_kernel and table.by == "kernel" and row.base is not None:
        yield f"was: {name_text(table.by, row.base)}"


def _phases_text(row: records.Row) -> str:
    steps = row.change.base_steps, row.change.head_steps
    parts = [
        (short_phase(Phase(each.phase)), each.head_ns / steps[1] - each.base_ns / steps[0])
        for each in row.phases
    ]
    largest = sorted((part for part in parts if part[1]), key=lambda part: -abs(part[1]))
    if len(row.phases) == 1:
        return parts[0][0]
    return ", ".join(f"{name} {signed(delta)}" for name, delta in largest)


def _shape_texts(comparison: Comparison, row: records.Row) -> Iterator[str]:
    old, new = (
        side.shapes.get((each.kernel, each.kind)) if each else None
        for side, each in zip(comparison.matched.sides, (row.base, row.head), strict=True)
    )
    if old and new and old != new:
        named = zip(("grid", "block"), old, new, strict=True)
        yield ", ".join(f"{name} {mine} -> {other}" for name, mine, other in named if mine != other)


def _parts_text(comparison: Comparison, change: records.Change) -> str:
    whole = comparison.device
    parts = (
        (change.base_per_step_ns, whole.base_per_step_ns),
        (change.head_per_step_ns, whole.head_per_step_ns),
    )
    return " -> ".join(f"{100 * part / of:.1f}%" if of else "none" for part, of in parts)


def _ranks_text(run: records.Run) -> str:
    if run.ranks == (0,):
        return ""
    return f"rank{'s' if len(run.ranks) > 1 else ''} {', '.join(map(str, run.ranks))}"
