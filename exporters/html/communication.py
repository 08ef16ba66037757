"""Owns what report.html says of collectives: a row for each, with its process group and line."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from html import escape
from typing import Any

from profiler_ext.exporters import tables
from profiler_ext.exporters.display_text import labels, time_text
from profiler_ext.exporters.html.links import link
from profiler_ext.exporters.table_kinds import table_named
from profiler_ext.exporters.table_texts import records
from profiler_ext.printable import printable
from profiler_ext.records import Analysis, Settings

_SHOWN = 20
_TIME_COLUMNS = {
    "a step": "duration_ns",
    "exposed": "exposed_ns",
    "overlapped": "overlapped_ns",
    "waiting": "waiting_ns",
}
Row = Mapping[str, Any]


def communication(analyses: Sequence[Analysis]) -> str:
    """Return what collectives took; nothing where none ran.

    Args:
        analyses: one for each rank; of several it is the mean of a rank.
    """
    rows = records(tables.of_ranks(analyses, 0, "communication"))
    if not rows:
        return ""
    shown = {
        head: name for head, name in _TIME_COLUMNS.items() if any(row[name] is not None for row in rows)
    }
    settings = analyses[0].recording.settings
    heads = "".join(f'<th class="number">{escape(each)}</th>' for each in shown)
    named = f"<thead><tr><th>collective</th><th>process group</th><th>line</th>{heads}</tr></thead>"
    body = "".join(_collective_row(row, shown.values(), settings) for row in rows[:_SHOWN])
    rest = len(rows) - _SHOWN
    more = f'<p class="quiet">{rest} more: profiler-ext report --by communication</p>'
    table = f"<table>{named}<tbody>{body}</tbody></table>{more if rest > 0 else ''}"
    return f'<section id="communication"><h2>Communication</h2>{table}</section>\n'


def _collective_row(row: Row, names: Collection[str], settings: Settings) -> str:
    collective, line = labels(table_named("communication"), row, settings)
    code = f'<div class="quiet">{_text(row["code"])}</div>' if row["code"] else ""
    of_steps = row["steps"] * row.get("ranks", 1)
    times = (None if row[name] is None else row[name] / of_steps for name in names)
    cells = "".join(f'<td class="number">{_time_or_unknown(each)}</td>' for each in times)
    group = row["process_group"] or "not told"
    place = _text(line) if row["file"] is None else link("line", line)
    shown = f"<td>{_text(collective)}</td><td>{_text(group)}</td><td>{place}{code}</td>"
    return f"<tr>{shown}{cells}</tr>"


def _time_or_unknown(time_ns: float | None) -> str:
    """A time; of a group that is not whole nobody knows how long it waited."""
    return "not told" if time_ns is None else time_text(time_ns)


def _text(text: str) -> str:
    return escape(printable(text))
