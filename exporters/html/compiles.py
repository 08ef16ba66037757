"""Owns what report.html says of compiling: one line, and a row for each compilation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from profiler_ext.exporters import tables
from profiler_ext.exporters.compile_table import HEADS, phases_of
from profiler_ext.exporters.compile_texts import (
    compile_text,
    compile_text_of_ranks,
    detail_texts,
    name_text,
)
from profiler_ext.exporters.display_text import time_text
from profiler_ext.exporters.table_texts import records
from profiler_ext.printable import printable
from profiler_ext.records import Analysis, CompilePhase, Settings

_SHOWN = 20
Row = Mapping[str, Any]


def compiles(analyses: Sequence[Analysis]) -> str:
    """Return what compiling took; nothing where no compilation is known.

    Args:
        analyses: one for each rank; the rows are those of the first.
    """
    analysis, *others = analyses
    summary_text = compile_text_of_ranks(analyses) if others else compile_text(analysis)
    if summary_text is None:
        return ""
    rows = records(tables.compiles(analysis))
    phases = phases_of(rows)
    first, rest = rows[:_SHOWN], rows[_SHOWN:]
    settings = analysis.recording.settings
    more = _more_details(len(rest), _compile_table(rest, phases, settings)) if rest else ""
    body = f"<p>{_text(summary_text)}</p>{_compile_table(first, phases, settings)}{more}"
    where = f" (each compilation: of rank {analysis.recording.settings.rank})" if others else ""
    return f'<section id="compiles"><h2>What torch compiled{where}</h2>{body}</section>\n'


def _compile_table(rows: Sequence[Row], phases: Sequence[CompilePhase], settings: Settings) -> str:
    heads = ("time", *(HEADS[phase] for phase in phases))
    head = "".join(f'<th class="number">{escape(each)}</th>' for each in heads)
    body = "".join(_compile_row(row, phases, settings) for row in rows)
    named = f"<thead><tr><th>function</th>{head}</tr></thead>"
    return f"<table>{named}<tbody>{body}</tbody></table>"


def _compile_row(row: Row, phases: Sequence[CompilePhase], settings: Settings) -> str:
    spent = (row["compile_ns"], *(row[f"{phase}_ns"] for phase in phases))
    cells = "".join(f'<td class="number">{time_text(each) if each else ""}</td>' for each in spent)
    details = "".join(
        f'<div class="quiet">{_text(each)}</div>' for each in detail_texts(row, settings)
    )
    return f"<tr><td>{_text(name_text(row, settings))}{details}</td>{cells}</tr>"


def _more_details(count: int, body: str) -> str:
    return f"<details><summary>{count} more</summary>{body}</details>"


def _text(text: str) -> str:
    return escape(printable(text))
