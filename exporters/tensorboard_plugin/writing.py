"""An analysis as the TensorBoard view's file.

A fusion is more than a kernel's name: ``extern_kernels.mm`` runs for many lines, each time for one.
Modules do not count as content, so that repeated layers of a model share a fusion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from profiler_ext.exporters import tables
from profiler_ext.exporters.sources import SourceFile, local_sources, source_files
from profiler_ext.exporters.table_kinds import BY
from profiler_ext.exporters.tables.sums import (
    Keys,
    kernel_keys,
    line_keys,
    module_keys,
    phase_keys,
    text_keys,
)
from profiler_ext.exporters.tensorboard_plugin import document
from profiler_ext.exporters.views import findings, formatting, idle, rooflines
from profiler_ext.exporters.views.summary import coverage_lines, heading, peak_texts, records
from profiler_ext.file_io import replacing
from profiler_ext.findings import Finding, Findings, find
from profiler_ext.printable import printable
from profiler_ext.records import recording, share_sums, vocabulary
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Ints, first_rows, numbered
from profiler_ext.records.step_kinds import of_usual_kind

_CONTENT = ("line", "op", "phase")
_COLUMNS = ("line", "module", "op", "phase")
_TAB = 8
_PHASES = tuple(phase.value for phase in vocabulary.Phase)
_SHOWN_IDLE = 3
_SHOWN = ("line", "module", "kernel", "op", "phase")


def top_findings(result: Findings, settings: recording.Settings) -> document.TopFindings:
    """Return the top recommendations."""
    return document.TopFindings(
        title=findings.findings_heading(result),
        findings=tuple(_finding_text(each, settings) for each in result.ranked[: findings.SHOWN]),
        more=findings.more_text(result, "profiler-ext report --findings") or "",
    )


def _finding_text(finding: Finding, settings: recording.Settings) -> document.FindingText:
    return document.FindingText(
        saving=" ".join(filter(None, findings.saving_texts(finding))),
        summary=findings.what_text(finding),
        location=findings.where_text(finding.location, settings),
        evidence=findings.why_text(finding),
        remedy=printable(finding.remedy),
    )


def _fusion_of(launch: Ints, numbers: Mapping[str, Ints]) -> Ints:
    """Return the number of each share's content, by first launch."""
    content = numbered([numbers[name] for name in _CONTENT])
    launches, shares = np.unique(launch, return_index=True)
    of_launch, contents = share_sums.distinct_pairs(launch, content)
    bounds = np.searchsorted(of_launch, np.append(launches, launches[-1] + 1))
    content_bytes, size = contents.tobytes(), contents.itemsize
    texts = [content_bytes[begin:end] for begin, end in pairwise((bounds * size).tolist())]
    kernels = numbers["kernel"][shares].tolist()
    known: dict[tuple[int, bytes], int] = {}
    fusion_of_launch = np.empty(len(launches), np.int64)
    for at in np.argsort(shares).tolist():
        fusion_of_launch[at] = known.setdefault((kernels[at], texts[at]), len(known))
    return fusion_of_launch[np.searchsorted(launches, launch)]


def _summed(
    columns: Sequence[Ints], launch: Ints, duration_ns: Ints
) -> tuple[list[list[int]], list[tuple[int, int]]]:
    """Return the distinct rows, in order, with their launches and time."""
    of_share = numbered(columns)
    firsts = first_rows(of_share)
    rows = np.column_stack([column[firsts] for column in columns])
    duration = share_sums.sum_by(of_share, duration_ns, len(rows))
    launches = share_sums.count_distinct(of_share, launch, len(rows))
    return rows.tolist(), list(zip(launches.tolist(), duration.tolist(), strict=True))


def write_attribution(
    analysis: Analysis, log_dir: Path, worker: str, roots: Iterable[str | Path] = ()
) -> Path:
    """Write the view's file."""
    path = log_dir / f"{worker}{document.SUFFIX}"
    with replacing(path) as file:
        file.write(document.encoded(make_document(analysis, roots)))
    return path


def make_document(analysis: Analysis, roots: Iterable[str | Path] = ()) -> document.Document:
    """Return the view's data; ``roots`` are for source files."""
    whole, analysis = analysis, of_usual_kind(analysis)
    tables = {by: _Table.of(analysis, by) for by in _SHOWN}
    timed = {row["file"] for row in tables["line"].records}
    sources = source_files(analysis, local_sources([analysis], roots))
    files = [file for file in sources if file.path in timed]
    number_of = {file.path: number for number, file in enumerate(files)}
    fusions, parts = _fusions_and_parts(analysis, tables)
    settings = analysis.recording.settings
    return document.Document(
        format=document.FORMAT,
        version=document.VERSION,
        heading=heading(whole),
        notes=tuple(map(printable, analysis.notes)),
        steps=len(analysis.steps),
        phases=_PHASES,
        breakdown=tuple(_accounts(analysis)),
        recommendations=top_findings(find(analysis), settings) if analysis.steps else None,
        overview=(
            *coverage_lines([analysis]),
            idle.causes_text(analysis),
            *(each.text for each in idle.idle_texts(analysis, _SHOWN_IDLE)),
            *peak_texts([analysis]),
        ),
        tables=document.Tables(
            line=tables["line"].rows(number_of),
            module=tables["module"].rows({}),
            kernel=tables["kernel"].rows({}),
            phase=tables["phase"].rows({}),
        ),
        ops=tuple(name for (name,) in tables["op"].names),
        fusions=fusions,
        parts=parts,
        files=tuple(_source(file, settings) for file in files),
    )


class _Table(NamedTuple):
    """A summing table: its records, and their names."""

    records: list[dict[str, Any]]
    names: list[tuple[str, ...]]

    @classmethod
    def of(cls, analysis: Analysis, by: str) -> _Table:
        rows = records(BY[by].make(analysis))
        settings = analysis.recording.settings
        return cls(
            rows, [tuple(map(printable, formatting.labels(BY[by], row, settings))) for row in rows]
        )

    def rows(self, number_of: Mapping[str, int]) -> tuple[document.Row, ...]:
        """Return the rows; ``number_of`` numbers the files."""
        pairs = zip(self.records, self.names, strict=True)
        return tuple(_row(row, names, number_of) for row, names in pairs)


def _row(
    row: Mapping[str, Any], names: tuple[str, ...], number_of: Mapping[str, int]
) -> document.Row:
    return document.Row(
        names=names,
        launches=row["launches"],
        phase_ns=tuple(row[phase] for phase in _PHASES),
        inclusive_ns=row["inclusive_ns"],
        file=number_of.get(row.get("file") or ""),
        line=row.get("line"),
        roofline=rooflines.roofline_text(row),
        could_save_ns=row.get("could_save_ns") or 0,
    )


def _accounts(analysis: Analysis) -> Iterable[document.Account]:
    for row in records(tables.coverage(analysis)):
        yield document.Account(printable(formatting.breakdown_label(row)), row["duration_ns"])


def _source(file: SourceFile, settings: recording.Settings) -> document.Source:
    lines = ((line, printable(text.expandtabs(_TAB))) for line, text in file.lines.items())
    return document.Source(
        printable(formatting.short_path(file.path, settings)), printable(file.missing), tuple(lines)
    )


def _fusions_and_parts(
    analysis: Analysis, tables: Mapping[str, _Table]
) -> tuple[tuple[document.Fusion, ...], tuple[document.Part, ...]]:
    shares = analysis.shares
    chosen = share_sums.profiled_shares(analysis)
    if not len(chosen):
        return (), ()
    keys = {
        "kernel": kernel_keys(analysis),
        "line": line_keys(analysis, "model"),
        "module": module_keys(analysis, None),
        "op": text_keys(analysis, "aten_op"),
        "phase": phase_keys(analysis),
    }
    numbers = {by: _numbers(keys[by], tables[by].records, by)[chosen] for by in _SHOWN}
    launch = shares.launch[chosen]
    duration_ns = shares.duration_ns[chosen]
    fusion = _fusion_of(launch, numbers)
    rows, sums = _summed([fusion], launch, duration_ns)
    kernel = dict(zip(fusion.tolist(), numbers["kernel"].tolist(), strict=True))
    fusions = tuple(document.Fusion(kernel[at], *sums[at]) for (at,) in rows)
    columns = [fusion, *(numbers[name] for name in _COLUMNS)]
    rows, sums = _summed(columns, launch, duration_ns)
    return fusions, tuple(document.Part(*(*row, *sums[at])) for at, row in enumerate(rows))


def _numbers(keys: Keys, rows: Iterable[Mapping[str, Any]], by: str) -> Ints:
    """Return each share's row; for a phase, its number among all phases."""
    identity = BY[by].keys
    of_row = {tuple(row[name] for name in identity): at for at, row in enumerate(rows)}
    if by == "phase":
        of_row = {(phase,): at for at, phase in enumerate(_PHASES)}
    # A key of launches outside the profiled steps alone has no row, and no share that is chosen.
    names = (tuple(row[name] for name in identity) for row in records(keys.table))
    number = np.array([of_row.get(name, -1) for name in names], np.int64)
    return number[keys.of_share]
