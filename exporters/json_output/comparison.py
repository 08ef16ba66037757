"""A comparison and its gate as a JSON answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from types import MappingProxyType
from typing import Annotated

from profiler_ext.comparison import matching, memory, records, sides, significance
from profiler_ext.comparison.comparison import Comparison
from profiler_ext.comparison.gate import Evaluation, Gate
from profiler_ext.comparison.notes import notes
from profiler_ext.exporters.json_output import answers
from profiler_ext.exporters.json_output.documents import Answer, Cut, Part, PeakFacts, about
from profiler_ext.exporters.views.formatting import require_top


class PlacedFacts(Part, frozen=True, kw_only=True):
    """A line with a part of a change."""

    file: str
    line: int | None
    code: str | None
    is_in_head: Annotated[bool, about("false: the head has the line no more")]
    delta_ns: Annotated[float, about("of a mean step; 0 of memory")]
    delta_bytes: Annotated[int | None, about("at the peak of memory; else null")] = None


class CheckedFacts(Part, frozen=True, kw_only=True):
    """One thing that a condition was held against."""

    name: Annotated[str | None, about("null where it is the sum of all that is meant")]
    unit: Annotated[str, about("of the numbers: ns, of a mean step or a run's compiles; or bytes")]
    base: float
    head: float
    delta: float
    fraction: Annotated[float | None, about("the difference as a part of the base")]
    low: Annotated[float | None, about("lower end of the difference's 95% interval")]
    high: Annotated[float | None, about("upper end of it")]
    q_value: float | None
    verdict: Annotated[str | None, about("words.md; null of bytes, which are counted")]
    outcome: Annotated[str, about("passed, inconclusive, too_few or failed: words.md")]
    lines: Annotated[list[PlacedFacts], about("of what failed, where most of it is")]


class ConditionFacts(Part, frozen=True, kw_only=True):
    """A condition, and what came of it."""

    condition: Annotated[str, about("as it was written")]
    outcome: Annotated[str, about("the worst of all that it was held against")]
    checked: list[CheckedFacts]


class GateFacts(Part, frozen=True, kw_only=True):
    """What came of the conditions of --fail-if."""

    outcome: Annotated[str, about("the worst of all: passed, inconclusive, too_few or failed")]
    conditions: list[ConditionFacts]


def gate_facts(gate: Gate) -> GateFacts:
    """Return the outcomes of all conditions."""
    conditions = [
        ConditionFacts(
            condition=result.condition.text,
            outcome=result.outcome,
            checked=[_checked(each) for each in result.judged],
        )
        for result in gate.results
    ]
    return GateFacts(outcome=gate.outcome, conditions=conditions)


def _checked(judged: Evaluation) -> CheckedFacts:
    interval = judged.interval
    return CheckedFacts(
        name=judged.name or None,
        unit=judged.unit,
        base=judged.base,
        head=judged.head,
        delta=judged.delta,
        fraction=judged.fraction,
        low=None if interval is None else interval.low_ns,
        high=None if interval is None else interval.high_ns,
        q_value=None if interval is None else interval.q_value,
        verdict=judged.verdict,
        outcome=judged.outcome,
        lines=[
            PlacedFacts(
                file=line.subject.file or "",
                line=line.subject.line,
                code=line.subject.code,
                is_in_head=line.is_in_head,
                delta_ns=line.delta_ns,
                delta_bytes=line.delta_bytes,
            )
            for line in judged.lines
        ],
    )


class RunFacts(Part, frozen=True, kw_only=True):
    """A run of a side."""

    name: Annotated[str, about("how the user called it")]
    command: list[str]
    torch_version: str | None
    devices: list[str]
    ranks: list[int]
    step_count: int


class SideFacts(Part, frozen=True, kw_only=True):
    """One side of a comparison."""

    runs: list[RunFacts]
    rank_steps: Annotated[
        int, about("over how many steps times are summed, each rank's for itself")
    ]


class IntervalFacts(Part, frozen=True, kw_only=True):
    """How sure a difference is."""

    low_ns: Annotated[float, about("lower end of the 95% interval of the difference")]
    high_ns: Annotated[float, about("upper end of it")]
    p_value: Annotated[float, about("how often noise alone gives such a difference")]
    q_value: Annotated[float, about("the same among all rows: the rate of false discoveries")]


class ChangeFacts(Part, frozen=True, kw_only=True):
    """What something takes on both sides."""

    base_ns: Annotated[int, about("sum over the base's steps")]
    head_ns: Annotated[int, about("sum over the head's steps")]
    base_per_step_ns: Annotated[float, about("the mean step of one rank")]
    head_per_step_ns: float
    delta_ns: Annotated[float, about("head less base, of a mean step")]
    fraction: Annotated[float | None, about("the difference as a part of the base")]
    base_launches: int
    head_launches: int
    interval: Annotated[IntervalFacts | None, about("null for too few steps, or no difference")]
    verdict: Annotated[
        str,
        about(
            "equal, slower, faster, new, removed, not_significant, too_few or not_comparable: "
            "words.md"
        ),
    ]


class Named(Part, frozen=True, kw_only=True, omit_defaults=True):
    """What a row is of on one side; what its table does not tell apart is left out."""

    account: Annotated[str, about("which part of wall time: words.md")]
    file: str | None = None
    line: int | None = None
    function: str | None = None
    code: str | None = None
    module: str | None = None
    module_class: str | None = None
    aten_op: str | None = None
    phase: str | None = None
    kernel: str | None = None
    kind: str | None = None
    grid: Annotated[
        str | None, about("how many blocks the kernel has, 64x4; of one whose launches are alike")
    ] = None
    block: Annotated[str | None, about("how many threads one of its blocks has")] = None
    scope: str | None = None
    level: str | None = None
    category: str | None = None
    cause: str | None = None
    gap: str | None = None


class ComparedRow(Part, frozen=True, kw_only=True):
    """A row of a table of a comparison."""

    base: Annotated[Named | None, about("null where the base has no such thing")]
    head: Annotated[Named | None, about("null where the head has no such thing")]
    match: Annotated[str, about("by what both are known to be the same: words.md")]
    change: ChangeFacts
    phases_delta_ns: Annotated[dict[str, float], about("the difference of device time by phase")]
    modules: Annotated[list[str], about("modules with most of its time, numbers as *")]


class FusedKernelFacts(Part, frozen=True, kw_only=True):
    """Launches that compute one set of ops."""

    kernels: list[str]
    ops: list[Named]
    duration_ns: Annotated[int, about("sum over the side's steps")]
    launches: int


class NotFusedFacts(Part, frozen=True, kw_only=True):
    """Two kernels that pass a buffer on, and why they were not fused."""

    writer: str
    reader: str
    barrier: Annotated[str, about("as the table fusions has it")]
    reason: str


class FusionFacts(Part, frozen=True, kw_only=True):
    """A fusion that changed: what was launched for some ops before, and what now."""

    base: list[FusedKernelFacts]
    head: list[FusedKernelFacts]
    change: ChangeFacts
    not_fused: Annotated[list[NotFusedFacts], about("among the head's kernels, each pair once")]


class ComparedMemoryRow(Part, frozen=True, kw_only=True):
    """A line's bytes at the peak of each side, or those of a kind that have no line."""

    base: Annotated[Named | None, about("null where the base has none there; kind is of memory")]
    head: Named | None
    base_bytes: int
    head_bytes: int
    delta_bytes: int


class ComparedMemoryFacts(Part, frozen=True, kw_only=True):
    """The memory at the highest peak of each side."""

    base: PeakFacts
    head: PeakFacts
    delta_bytes: int
    rows: Annotated[list[ComparedMemoryRow], about("add up to the peaks; largest change first")]


class ComparisonAnswer(Answer, frozen=True, kw_only=True, tag="comparison"):
    """Two sides of runs compared."""

    base: SideFacts
    head: SideFacts
    step: Annotated[ChangeFacts, about("time of a step; in training the median of a side's steps")]
    step_basis: Annotated[
        str,
        about("training: steps in which no profiler was on; recorded: those that were recorded"),
    ]
    total: Annotated[ChangeFacts, about("wall time of a recorded step, on all devices of a rank")]
    device: Annotated[ChangeFacts, about("device time of what a step enqueued")]
    breakdown: Annotated[list[ComparedRow], about("adds up to total")]
    by: str
    row_count: int
    verdict_counts: Annotated[dict[str, int], about("how many rows came to each verdict")]
    rows: Annotated[list[ComparedRow], about("adds up to total, but those of compile")]
    fusions: list[FusionFacts]
    false_discovery_rate: Annotated[float, about("the q_value up to which a row is a change")]
    min_steps: Annotated[int, about("so many steps a side are needed where it has one run")]
    notes: list[str]
    gate: Annotated[GateFacts | None, about("null where there is no condition")] = None
    memory: Annotated[
        ComparedMemoryFacts | None, about("null where a side has no memory record")
    ] = None


def comparison_answer(
    comparison: Comparison, by: str = "line", top: int | None = None, gate: Gate | None = None
) -> ComparisonAnswer:
    """Return a comparison as an answer."""
    if top is not None:
        require_top(top)
    table = comparison.table(by)
    verdicts = [row.change.verdict for row in table.rows]
    shapes = [side.shapes for side in comparison.matched.sides]
    return ComparisonAnswer(
        cuts=[
            Cut(where=where, kept=top, total=total, unit="items", reason="top")
            for where, total in (
                ("rows", len(table.rows)),
                ("fusions", len(comparison.fusions)),
                ("memory.rows", 0 if comparison.memory is None else len(comparison.memory.rows)),
            )
            if top is not None and top < total
        ],
        base=side_facts(comparison.base),
        head=side_facts(comparison.head),
        step=change_facts(comparison.step.change),
        step_basis=comparison.step.basis.value,
        total=change_facts(comparison.total),
        device=change_facts(comparison.device),
        breakdown=[row_facts(row) for row in comparison.table("breakdown").rows],
        by=by,
        row_count=len(table.rows),
        verdict_counts={str(v): verdicts.count(v) for v in records.Verdict if v in verdicts},
        rows=[row_facts(row, shapes) for row in table.rows[:top]],
        fusions=[fusion_facts(each) for each in comparison.fusions[:top]],
        false_discovery_rate=significance.FALSE_DISCOVERY_RATE,
        min_steps=significance.MIN_STEPS,
        notes=list(notes(comparison, by)),
        gate=None if gate is None else gate_facts(gate),
        memory=None if comparison.memory is None else memory_facts(comparison.memory, top),
    )


def memory_facts(compared: memory.ComparedMemory, top: int | None = None) -> ComparedMemoryFacts:
    """Return the memory of both sides."""
    rows = [
        ComparedMemoryRow(
            base=_named(row.base),
            head=_named(row.head),
            base_bytes=row.base_bytes,
            head_bytes=row.head_bytes,
            delta_bytes=row.delta_bytes,
        )
        for row in compared.rows[:top]
    ]
    base, head = (answers.peak_facts(*each) for each in (compared.base, compared.head))
    return ComparedMemoryFacts(base=base, head=head, delta_bytes=compared.delta_bytes, rows=rows)


def side_facts(side: sides.Side) -> SideFacts:
    """Return a side's runs."""
    runs = [
        RunFacts(
            name=run.name,
            command=list(run.command),
            torch_version=run.torch_version or None,
            devices=list(run.devices),
            ranks=list(run.ranks),
            step_count=run.steps,
        )
        for run in side.runs
    ]
    return SideFacts(runs=runs, rank_steps=side.steps)


def change_facts(change: records.Change) -> ChangeFacts:
    """Return a change."""
    interval = change.interval
    return ChangeFacts(
        base_ns=change.base_ns,
        head_ns=change.head_ns,
        base_per_step_ns=change.base_per_step_ns,
        head_per_step_ns=change.head_per_step_ns,
        delta_ns=change.delta_ns,
        fraction=change.fraction,
        base_launches=change.base_launches,
        head_launches=change.head_launches,
        interval=None if interval is None else IntervalFacts(**asdict(interval)),
        verdict=change.verdict,
    )


def row_facts(
    row: records.Row, shapes: Sequence[Mapping[matching.Kernel, sides.Shape]] = ({}, {})
) -> ComparedRow:
    """Return a row of a table."""
    steps = row.change.base_steps, row.change.head_steps
    return ComparedRow(
        base=_named(row.base, shapes[0]),
        head=_named(row.head, shapes[1]),
        match=row.match,
        change=change_facts(row.change),
        phases_delta_ns={
            each.phase: each.head_ns / steps[1] - each.base_ns / steps[0] for each in row.phases
        },
        modules=list(row.modules),
    )


def _named(
    subject: records.Subject | None,
    shapes: Mapping[matching.Kernel, sides.Shape] = MappingProxyType({}),
) -> Named | None:
    if subject is None:
        return None
    names = {each.name: getattr(subject, each.name) for each in fields(subject)}
    grid, block = shapes.get((subject.kernel, subject.kind), (None, None))
    return Named(**names, grid=grid, block=block)


def fusion_facts(fusion: records.FusionChange) -> FusionFacts:
    """Return a fusion that changed."""
    return FusionFacts(
        base=[_fused(each) for each in fusion.base],
        head=[_fused(each) for each in fusion.head],
        change=change_facts(fusion.change),
        not_fused=[NotFusedFacts(**asdict(each)) for each in fusion.not_fused],
    )


def _fused(fused: records.FusedKernel) -> FusedKernelFacts:
    ops = [named for each in fused.ops if (named := _named(each)) is not None]
    return FusedKernelFacts(
        kernels=list(fused.kernels),
        ops=ops,
        duration_ns=fused.duration_ns,
        launches=fused.launches,
    )
