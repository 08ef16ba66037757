"""The first screen of a session: verdict, recommendations, lines, breakdown, what to do next.

It fits a terminal of 80 columns and 25 lines; ``--verbose`` prints the whole report instead.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path, PurePath

import numpy as np

from profiler_ext.attribution.notes import caveats
from profiler_ext.exporters import table_kinds, tables
from profiler_ext.exporters.tables.selection import Filters
from profiler_ext.exporters.tables.table import TEXT, concatenated, gather
from profiler_ext.exporters.terminal import columns, module_table
from profiler_ext.exporters.terminal.console import Console, Table, Text
from profiler_ext.exporters.terminal.tables import PART, TIME, top_table
from profiler_ext.exporters.views import findings as findings_view
from profiler_ext.exporters.views import formatting, idle, rooflines, summary
from profiler_ext.exporters.views.steps import OfKind, kind_texts, usual_kind_text
from profiler_ext.exporters.views.summary import SessionLike
from profiler_ext.memory.over_time import highest, kinds_bytes
from profiler_ext.printable import printable
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.memory import CPU
from profiler_ext.records.vocabulary import Scope

LINES = 25
_FINDINGS, _ROWS, _LEAST_ROWS = 3, 10, 5
_CAVEATS, _CAVEAT_LINES = 2, 2
_CAUSES, _KINDS = 3, 2
_LABEL = 21
_LINE, _MODULE = "line", "module"
_DEFAULT_FOLDER = "profile_out"
_MORE = ("by module", "verbose")
_INDENT = " " * 17


def next_steps(session: SessionLike, folder: Path) -> list[str]:
    """Return commands that go deeper into the session of a folder."""
    name = "" if str(folder) == _DEFAULT_FOLDER else f" {shlex.quote(str(folder))}"
    lines = session.columns("by_line")
    named = zip(lines["file"].tolist(), lines["line"].tolist(), strict=True)
    explain = [
        f"explain{name} {PurePath(file).name}:{line}" for file, line in named if line is not None
    ][:1]
    return [f"profiler-ext open{name}", *explain, *(f"report{name} --{each}" for each in _MORE)]


def next_text(commands: Sequence[str], width: int) -> str:
    """Return as many of the commands as fit one line, whole; the first always."""
    text, *others = (f"next: {commands[0]}", *commands[1:])
    for command in others:
        if len(text) + len(command) + 3 > width:
            break
        text += f" | {command}"
    return text


def print_first_screen(
    session: SessionLike, console: Console, commands: Sequence[str] = ()
) -> None:
    """Print what to know first; ``commands`` go deeper."""
    whole, session = session, OfKind(session)
    verdict = Text(findings_view.verdict_text(session.analyses, session.recommendations), "bold")
    advice = [*_finding_lines(session, console.width), *_caveat_lines(session, console)]
    above = [verdict, *_step_lines(whole), *advice, Text()]
    below = [Text(), *_breakdown_lines(session), *_memory_lines(whole)]
    last = [Text(next_text(commands, console.width), "dim")] if commands else []
    _print_lines(above, console)
    _print_work(session, console, max(LINES - len([*above, *below, *last]) - 1, _LEAST_ROWS))
    _print_lines(below, console)
    for line in last:  # a command can be copied only as a whole
        console.print(line, soft_wrap=True)


def _print_lines(lines: Iterable[Text], console: Console) -> None:
    for line in lines:
        console.print(line, no_wrap=True, overflow="ellipsis")


def _step_lines(session: SessionLike) -> Iterator[Text]:
    """Yield what a step is, where no optimizer ends one, and the rank that others wait for."""
    yield from (Text(each.text) for each in islice(idle.straggler_lines(session.analyses), 1))
    if called := session.analyses[0].recording.settings.step_call:
        yield Text(printable(f"a step is a call of {called}"), "dim")
    for text in (*kind_texts(session.analyses[0]), usual_kind_text(session.analyses[0])):
        if text:
            yield Text(text)


def _finding_lines(session: SessionLike, width: int) -> Iterator[Text]:
    """Yield two lines per finding: the time at stake and what it is, then what to try."""
    settings = session.analyses[0].recording.settings
    ranked = session.recommendations.ranked
    if not ranked and session.analyses[0].steps:
        yield Text(findings_view.findings_heading(session.recommendations))
    for finding in ranked[:_FINDINGS]:
        time, part = findings_view.saving_texts(finding)
        where = findings_view.place_text(finding.location, settings)
        what = Text(f"{time:>8}  {part:>5}  ")
        what.append(findings_view.what_text(finding), "bold")
        what.append(f" ({findings_view.confidence_text(finding)})", "dim")
        if where:
            what.append(f" {where}", "cyan")
        yield what
        start = f"{_INDENT}try: "
        remedy = findings_view.short_remedy(printable(finding.remedy), width - len(start))
        yield Text(f"{start}{remedy}", "green")


def _caveat_lines(session: SessionLike, console: Console) -> Iterator[Text]:
    """Yield what changes how far the numbers can be trusted."""
    every = dict.fromkeys(note for analysis in session.analyses for note in caveats(analysis))
    for note in [*every][:_CAVEATS]:
        lines = textwrap.wrap(
            printable(f"note: {note}"), console.width, max_lines=_CAVEAT_LINES, placeholder=" ..."
        )
        yield from (Text(line, "yellow") for line in lines)


def _print_work(session: SessionLike, console: Console, room: int) -> None:
    """Print the lines with the most time; modules too where one line has most of it."""
    lines = table_kinds.table_by(_LINE)
    table = with_ops(_LINE, session.columns, session.columns("by_line"), {})
    if not len(table):
        console.print(Text("no device time was recorded"))
        return
    times = table["duration_ns"].data
    if 2 * times.max() > times.sum() and (tree := _module_tree(session, console, room - 5)):
        console.print(_rows_of(lines, table, 3, session, console))
        console.print()
        console.print(tree)
    else:
        console.print(_rows_of(lines, table, min(_ROWS, room), session, console))


def _module_tree(session: SessionLike, console: Console, room: int) -> Table | None:
    """Return the modules' tree in at most so many rows, ``None`` if it has not even three."""
    kind = table_kinds.table_by(_MODULE)
    modules = with_ops(_MODULE, session.columns, session.columns("by_module"), {})
    for rows in range(room, 2, -1):
        tree = _rows_of(kind, modules, rows, session, console)
        if 3 <= tree.row_count <= room:
            return tree
    return None


def _rows_of(
    kind: table_kinds.TableKind,
    table: tables.Table,
    rows: int,
    session: SessionLike,
    console: Console,
) -> Table:
    """Return the largest rows; a row that counts the others takes one of them."""
    every = kind.in_order(table)
    shown = every.head(rows if len(every) <= rows else rows - 1)
    wall_ns = sum(row.duration_ns for analysis in session.analyses for row in analysis.breakdown)
    settings = session.analyses[0].recording.settings
    drawing = columns.Drawing(kind, every, shown, settings, console, wall_ns)
    return (top_table if kind.by == _LINE else module_table.module_table)(drawing)


def _breakdown_lines(session: SessionLike) -> Iterator[Text]:
    """Yield a line per scope with time, and their sum."""
    rows = summary.records(session.columns("coverage"))
    total = sum(row["duration_ns"] for row in rows)
    about = summary.attributed_texts(session.analyses)
    about[Scope.IDLE] = _causes_text(session)
    for scope in Scope:
        own = [row for row in rows if row["scope"] == scope]
        if any(row["duration_ns"] for row in own):
            is_outside = scope is Scope.IDLE and session.analyses[0].is_on_cpu
            label = "outside operators" if is_outside else scope.label
            yield _breakdown_line(label, own, total, about.get(scope, ""))
    if rows:
        mfu = rooflines.utilisation_texts(session.analyses)[:1]
        yield _breakdown_line(_step_label(session, rows), rows, total, *mfu)


def _memory_lines(session: SessionLike) -> Iterator[Text]:
    """Yield a line on the highest peak of memory, of a GPU if there is one."""
    every = [(a, peak) for a in session.analyses for peak in highest(a)]
    if not every:
        return
    analysis, peak = max(every, key=lambda each: (each[1].device != CPU, each[1].peak_bytes))
    file, settings = peak.place.file, analysis.recording.settings
    at = "" if file is None else f" at {formatting.short_path(file, settings)}:{peak.place.line}"
    kinds = (
        f"{kind.label} {formatting.percent_text(size, peak.peak_bytes)}"
        for kind, size in islice(kinds_bytes(peak).items(), _KINDS)
    )
    size = formatting.size_text(peak.peak_bytes)
    line = Text(f"{'peak memory':{_LABEL}} {size:>{TIME + 1}}  {'':>{PART}}")
    yield line.append(printable(f"  {', '.join(kinds)}; {peak.place.phase.label}{at}"), "dim")


def _step_label(session: SessionLike, rows: Sequence[columns.Row]) -> str:
    """Return the name of the step that the rows add up to, where the title has another."""
    found = session.recommendations
    mean_text, title_text = map(
        formatting.time_text, (sum(row["per_step_ns"] for row in rows), found.step_ns)
    )
    if found.unprofiled_step_ns is None:
        return "step" if mean_text == title_text else "mean step"
    return "step while profiling" if mean_text == title_text else "mean while profiling"


def _breakdown_line(label: str, rows: Sequence[columns.Row], total: int, about: str = "") -> Text:
    time = formatting.time_text(sum(row["per_step_ns"] for row in rows))
    part = formatting.percent_text(sum(row["duration_ns"] for row in rows), total)
    line = Text(f"{label:{_LABEL}}  {time:>{TIME}}  {part:>{PART}}")
    return line.append(f"  {about}", "dim")


def _causes_text(session: SessionLike) -> str:
    """Return the largest causes of idle time, each with its part of it."""
    causes = idle.cause_times(session.columns("idle_by_cause"))
    total = sum(time_ns for _, time_ns in causes)
    texts = [f"{cause} {formatting.percent_text(time_ns, total)}" for cause, time_ns in causes]
    more = f", {len(texts) - _CAUSES} more" if len(texts) > _CAUSES else ""
    return ", ".join(texts[:_CAUSES]) + more


def with_ops(
    by: str | None,
    table_of: Callable[..., tables.Table],
    table: tables.Table,
    filters: Filters,
) -> tables.Table:
    """Return a table of lines or modules with ops in place of the one row for all eager work.

    That row is all that there is of a script without compiled code on Python 3.11.
    """
    if by not in ("line", "module") or filters.get("scope") == Scope.COMPILED:
        return table
    gaps = table["gap"].tolist()
    without_lines = np.array([gap == GapReason.LINES_NEED_PYTHON_312 for gap in gaps], np.bool_)
    if not without_lines.any():
        return table
    eager: Filters = {**filters, "scope": Scope.EAGER.value}
    ops = table_of("by_op", **eager)
    ops = ops.take(np.array([op is not None for op in ops["aten_op"].tolist()], np.bool_))
    if ops["duration_ns"].sum() != table["duration_ns"].data[without_lines].sum():
        return table  # the op of some is not known either
    names = ops["aten_op"].tolist()
    own = {name: ops[name] for name in table.columns if name in ops}
    of_ops = tables.Table({**own, "gap": gather(names, np.arange(len(names)), TEXT)})
    return concatenated([table.take(~without_lines), of_ops]).longest_first(())
