"""Owns how an analysis becomes the file that the view reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from profiler_ext.exporters import tables
from profiler_ext.exporters.display_text import labels, ledger_label, short_path
from profiler_ext.exporters.headings import heading
from profiler_ext.exporters.idle_texts import causes_text, idle_texts
from profiler_ext.exporters.roofline_texts import roofline_text
from profiler_ext.exporters.sources import SourceFile, source_files, local_sources
from profiler_ext.exporters.table_kinds import BY
from profiler_ext.exporters.table_texts import coverage_lines, records
from profiler_ext.exporters.tables.keys import (
    Keys,
    kernel_keys,
    line_keys,
    module_keys,
    phase_keys,
    text_keys,
)
from profiler_ext.exporters.tables.selection import Selection
from profiler_ext.exporters.tensorboard_plugin.document import (
    FORMAT,
    SUFFIX,
    VERSION,
    Account,
    Document,
    Fusion,
    Part,
    Row,
    Source,
    Tables,
    encoded,
)
from profiler_ext.exporters.tensorboard_plugin.first import top_findings
from profiler_ext.exporters.tensorboard_plugin.parts import fusions_and_parts
from profiler_ext.files.writing import replacing
from profiler_ext.findings import find
from profiler_ext.printable import printable
from profiler_ext.records import Analysis, Ints, Phase, Settings

_TAB = 8
_PHASES = tuple(phase.value for phase in Phase)
_SHOWN_IDLE = 3
_SHOWN = ("line", "module", "kernel", "op", "phase")


def write_attribution(
    analysis: Analysis, log_dir: Path, worker: str, roots: Iterable[str | Path] = ()
) -> Path:
    """Write what the view shows of an analysis.

    Args:
        analysis: what to write.
        log_dir: the folder to give to ``tensorboard --logdir``, or one below it.
        worker: what to call the process, such as ``rank0``.
        roots: further folders from which source may be shown.

    Returns:
        The file that was written.

    Raises:
        OutputError: The file cannot be written.
    """
    path = log_dir / f"{worker}{SUFFIX}"
    with replacing(path) as file:
        file.write(encoded(make_document(analysis, roots)))
    return path


def make_document(analysis: Analysis, roots: Iterable[str | Path] = ()) -> Document:
    """Return what the view shows of an analysis; ``roots`` are for source files.

    Args:
        analysis: an analysis.
        roots: folders from which source may be shown.
    """
    tables = {by: _Table.of(analysis, by) for by in _SHOWN}
    files = _timed_files(analysis, tables["line"], roots)
    number_of = {file.path: number for number, file in enumerate(files)}
    fusions, parts = _fusions_and_parts(analysis, tables)
    settings = analysis.recording.settings
    return Document(
        format=FORMAT,
        version=VERSION,
        heading=heading(analysis),
        notes=tuple(map(printable, analysis.notes)),
        steps=len(analysis.steps),
        phases=_PHASES,
        ledger=tuple(_accounts(analysis)),
        first=top_findings(find(analysis), settings) if analysis.steps else None,
        said=(
            *coverage_lines([analysis]),
            causes_text(analysis),
            *(each.text for each in idle_texts(analysis, _SHOWN_IDLE)),
        ),
        tables=Tables(
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
    """A summing table: its records, and what each is called."""

    records: list[dict[str, Any]]
    names: list[tuple[str, ...]]

    @classmethod
    def of(cls, analysis: Analysis, by: str) -> _Table:
        rows = records(BY[by].make(analysis))
        settings = analysis.recording.settings
        return cls(rows, [tuple(map(printable, labels(BY[by], row, settings))) for row in rows])

    def rows(self, number_of: Mapping[str, int]) -> tuple[Row, ...]:
        """Return the rows; ``number_of`` numbers the files."""
        pairs = zip(self.records, self.names, strict=True)
        return tuple(_row(row, names, number_of) for row, names in pairs)


def _row(row: Mapping[str, Any], names: tuple[str, ...], number_of: Mapping[str, int]) -> Row:
    return Row(
        names=names,
        launches=row["launches"],
        phase_ns=tuple(row[phase] for phase in _PHASES),
        inclusive_ns=row["inclusive_ns"],
        file=number_of.get(row.get("file") or ""),
        line=row.get("line"),
        near=roofline_text(row),
        could_save_ns=row.get("could_save_ns") or 0,
    )


def _accounts(analysis: Analysis) -> Iterable[Account]:
    for row in records(tables.coverage(analysis)):
        yield Account(printable(ledger_label(row)), row["duration_ns"])


def _timed_files(
    analysis: Analysis, lines: _Table, roots: Iterable[str | Path]
) -> list[SourceFile]:
    timed = dict.fromkeys(row["file"] for row in lines.records if row["file"])
    files = source_files(analysis, local_sources([analysis], roots))
    return [file for file in files if file.path in timed]


def _source(file: SourceFile, settings: Settings) -> Source:
    lines = ((line, printable(text.expandtabs(_TAB))) for line, text in file.lines.items())
    return Source(printable(short_path(file.path, settings)), printable(file.missing), tuple(lines))


def _fusions_and_parts(
    analysis: Analysis, tables: Mapping[str, _Table]
) -> tuple[tuple[Fusion, ...], tuple[Part, ...]]:
    shares = analysis.shares
    chosen = Selection().profiled(analysis)[shares.launch]
    if not chosen.any():
        return (), ()
    keys = _keys(analysis)
    numbers = {by: _numbers(keys[by], tables[by].records, by)[chosen] for by in _SHOWN}
    return fusions_and_parts(shares.launch[chosen], shares.duration_ns[chosen], numbers)


def _keys(analysis: Analysis) -> dict[str, Keys]:
    return {
        "kernel": kernel_keys(analysis),
        "line": line_keys(analysis, "model"),
        "module": module_keys(analysis, None),
        "op": text_keys(analysis, "aten_op"),
        "phase": phase_keys(analysis),
    }


def _numbers(keys: Keys, rows: Iterable[Mapping[str, Any]], by: str) -> Ints:
    """Return for each share the number of its row; for a phase, its number among all phases."""
    identity = BY[by].keys
    of_row = {tuple(row[name] for name in identity): at for at, row in enumerate(rows)}
    if by == "phase":
        of_row = {(phase,): at for at, phase in enumerate(_PHASES)}
    # A key of launches outside the profiled steps alone has no row, and no share that is chosen.
    names = (tuple(row[name] for name in identity) for row in records(keys.table))
    number = np.array([of_row.get(name, -1) for name in names], np.int64)
    return number[keys.of_share]
