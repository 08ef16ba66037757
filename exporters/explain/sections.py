"""Owns what the page about one thing says, in its order: texts and small tables for any medium."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from profiler_ext.exporters.answers.explained import (
    Explanation,
    KernelRow,
    NodeFacts,
    PartRow,
)
from profiler_ext.exporters.answers.parts import FindingEntry, GapRow
from profiler_ext.exporters.display_text import (
    cause_text,
    gap_text,
    percent_text,
    short_path,
    short_phase,
    time_text,
)
from profiler_ext.exporters.explain.head import EachStep, head_texts, is_part
from profiler_ext.exporters.explain.subjects import THE_MODEL, Kind
from profiler_ext.exporters.short_texts import kernel_text
from profiler_ext.records import (
    EagerEvidence,
    ForwardEvidence,
    LineEvidence,
    Phase,
    Settings,
    SiteEvidence,
    Term,
)

_SHOWN_CODE, _SHOWN_NODES = 40, 6
_BEGINS = ("@triton.jit", 'extern "C"')
_TITLES = {
    "fused_with": "Fused with, in the same launches",
    "lines": "Lines",
    "modules": "Modules",
    "ops": "ATen ops",
    "callers": "Called at",
}
_HEADS = {
    "fused_with": "line",
    "lines": "line",
    "modules": "module",
    "ops": "ATen op",
    "callers": "line",
}
_RULES: tuple[type[Term], ...] = (SiteEvidence, LineEvidence, EagerEvidence, ForwardEvidence)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page.

    Attributes:
        title: what heads it.
        heads: what heads the columns of its table; the first is a name, the others are numbers.
        rows: the table.
        texts: lines of text below.
        code: generated code below.
        keeps_end: names that are too long give way in their middle, else at their end.
    """

    title: str
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    texts: tuple[str, ...] = ()
    code: str = ""
    keeps_end: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """The page.

    Attributes:
        title: what it is about.
        code: text of the line, where it is one.
        texts: what is said of the whole.
        sections: its parts; those with nothing to say are left out.
    """

    title: str
    code: str
    texts: tuple[str, ...]
    sections: tuple[Section, ...] = field(default=())


def page(told: Explanation, settings: Settings) -> Page:
    """Return the page about one thing.

    Args:
        told: all about it.
        settings: has the roots that shorten paths.
    """
    sections = (each for each in _sections(told, settings) if each.rows or each.texts or each.code)
    subject = told.subject
    about = subject.module_class or (subject.function and f"in {subject.function}")
    title = " · ".join(filter(None, (subject.name, subject.kind, about)))
    return Page(title, subject.code or "", tuple(head_texts(told)), tuple(sections))


def _sections(told: Explanation, settings: Settings) -> Iterator[Section]:
    whole = told.time.duration_ns
    yield Section("What is to be done", texts=tuple(map(_finding, told.findings)))
    yield from _since(told)
    yield _kernel_section(told)
    for name, title in _TITLES.items():
        rows: Sequence[PartRow] = getattr(told, name)
        of = sum(row.duration_ns for row in rows) if name == "fused_with" else whole
        if not (name in ("modules", "lines") and _says_nothing(rows, told)):
            yield _part_section(told, name, title, of, settings)
    yield Section("The device waited while the CPU was there", texts=tuple(_idle(told)))
    yield Section("How that is known", texts=tuple(_evidence(told)))
    yield Section("What is not known", texts=tuple(_gaps(told)))
    if told.generated:
        yield _code_section(told)


def _since(told: Explanation) -> Iterator[Section]:
    """Yield the section about another run, where there is one."""
    if told.against is not None:
        name = ", ".join(run.name for run in told.against.base.runs)
        notes = (f"note: {note}" for note in told.against.notes)
        yield Section(f"Since {name}", texts=(*told.against.in_words, *notes))


def _says_nothing(rows: Sequence[PartRow], told: Explanation) -> bool:
    """Tell whether a table would only repeat what is explained."""
    return (
        len(rows) == 1
        and told.subject.kind == Kind.MODULE
        and (rows[0].module == told.subject.module and rows[0].file is None)
    )


def _kernel_section(told: Explanation) -> Section:
    rows = tuple(_kernel(row, told) for row in told.kernels)
    whole = ("whole",) if is_part(told) else ()
    heads = ("kernel", "a step", "part", *whole, "launches", "median", "kind", "min", "max")
    return Section("Kernels", heads, rows, _more(told, "kernels"), keeps_end=True)


def _kernel(row: KernelRow, told: Explanation) -> tuple[str, ...]:
    each = EachStep.of(told)
    return (
        kernel_text({"kernel": row.kernel, "name": row.name}),
        each.time(row.duration_ns),
        percent_text(row.duration_ns, told.time.duration_ns),
        *((each.time(row.whole_ns),) if is_part(told) else ()),
        each.count(row.launches),
        time_text(row.median_ns),
        row.kind,
        time_text(row.min_ns),
        time_text(row.max_ns),
    )


def _part_section(
    told: Explanation, name: str, title: str, whole_ns: int, settings: Settings
) -> Section:
    rows: Sequence[PartRow] = getattr(told, name)
    phases = [phase for phase in Phase if any(phase in row.phases_ns for row in rows)]
    heads = (_HEADS[name], "a step", "part", *map(short_phase, phases))
    each = EachStep.of(told)
    cells = tuple(
        (
            _named(row, settings),
            each.time(row.duration_ns),
            percent_text(row.duration_ns, whole_ns),
            *(each.time(row.phases_ns[p]) if p in row.phases_ns else "" for p in phases),
        )
        for row in rows
    )
    return Section(title, heads, cells, _more(told, name))


def _named(row: PartRow, settings: Settings) -> str:
    line = "" if row.file is None else f"{short_path(row.file, settings)}:{row.line}"
    gap = f"({gap_text(row.gap)})" if row.gap else ""
    module = THE_MODEL if row.module == "" else row.module
    if row.modules > 1:
        module = f"{module} ({row.modules} modules)"
    parts = (line or gap, module, row.aten_op, row.code and row.code.strip())
    return " · ".join(filter(None, parts)) or "(no source line)"


def _more(told: Explanation, name: str) -> tuple[str, ...]:
    """Say how many rows are left out."""
    cuts = [cut for cut in told.cuts if cut.where == name]
    each = EachStep.of(told)
    return tuple(
        f"({cut.of - cut.kept} more: {each.time(cut.left_out_ns or 0)} a step)" for cut in cuts
    )


def _finding(entry: FindingEntry) -> str:
    part = percent_text(entry.at_stake_ns, entry.of_ns) if entry.stake == "step" else entry.stake
    stake = f"{time_text(entry.at_stake_ns)} {part}"
    return f"{stake} · {entry.what} ({entry.rule}) · try: {entry.remedy}"


def _idle(told: Explanation) -> Iterator[str]:
    each = EachStep.of(told)
    for row in told.idle:
        during = f" while the CPU ran {row.cpu_activity}" if row.cpu_activity else ""
        yield f"{each.time(row.duration_ns)} a step: {cause_text(row.cause)}{during}"


def _evidence(told: Explanation) -> Iterator[str]:
    whole = told.time.duration_ns
    rules = {
        "launches tied": told.site_evidence_ns,
        "source line": told.line_evidence_ns,
        "backward to forward": told.forward_evidence_ns,
    }
    for what, times in rules.items():
        parts = (f"{_rule(rule)} {percent_text(time, whole)}" for rule, time in times.items())
        if times:
            yield f"{what}: {', '.join(parts)}"


def _rule(rule: str) -> str:
    for vocabulary in _RULES:
        if rule in tuple(vocabulary):
            return f"{vocabulary(rule).words} ({rule})"
    return rule


def _gaps(told: Explanation) -> Iterator[str]:
    yield from (f"of it {_gap(gap)}" for gap in told.own_gaps)
    if told.whole.gaps:
        gaps = (f"{gap.gap} {percent_text(gap.fraction or 0, 1)}" for gap in told.whole.gaps)
        yield f"of the whole session's busy time: {', '.join(gaps)}"


def _gap(gap: GapRow) -> str:
    return f"{percent_text(gap.fraction or 0, 1)}: {gap.words} ({gap.gap}); {gap.remedy}"


def _code_section(told: Explanation) -> Section:
    first, *others = told.generated
    lines = _body(first.text.splitlines())
    left = len(lines) - _SHOWN_CODE
    texts = [f"({left} more lines: --format json)"] if left > 0 else []
    if first.other_nodes:
        listed = ", ".join(_node(node) for node in first.own_nodes[:_SHOWN_NODES])
        more = f", and {len(first.own_nodes) - _SHOWN_NODES} more"
        more = more if len(first.own_nodes) > _SHOWN_NODES else ""
        rest = f"{first.other_nodes} nodes of others"
        texts.append(f"its part, in the first launch: {listed}{more}; besides, {rest}")
    if others:
        listed = ", ".join(each.kernel for each in others)
        texts.append(f"the code of {listed} is in --format json")
    code = "\n".join(lines[:_SHOWN_CODE])
    return Section(f"Generated code of {first.kernel}", texts=tuple(texts), code=code)


def _body(lines: list[str]) -> list[str]:
    """Return a kernel from where its function begins, without what it imports."""
    starts = (at for at, line in enumerate(lines) if line.startswith(_BEGINS))
    return lines[next(starts, 0) :]


def _node(node: NodeFacts) -> str:
    return " ".join(filter(None, (node.name, node.target, *node.outputs)))
