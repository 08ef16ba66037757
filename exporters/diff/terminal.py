"""A comparison in the terminal."""

from __future__ import annotations

import io
from collections.abc import Sequence

from profiler_ext.comparison.comparison import Comparison
from profiler_ext.comparison.notes import notes
from profiler_ext.comparison.records import (
    Account,
    FusedKernel,
    FusionChange,
    NotFused,
    Row,
    Table,
    Verdict,
)
from profiler_ext.exporters.diff.texts import (
    change_text,
    count_text,
    details_text,
    device_rows,
    idle_rows,
    kernel_text,
    memory_rows,
    row_texts,
    shown_rows,
    side_text,
    total_texts,
)
from profiler_ext.exporters.terminal.console import (
    Console,
    Text,
    print_line,
    print_notes,
    print_wrapped,
    text_console,
)
from profiler_ext.exporters.views.between import barrier_name
from profiler_ext.exporters.views.formatting import middle, require_top
from profiler_ext.printable import printable

STYLES = {
    Verdict.SLOWER: "red",
    Verdict.NEW: "red",
    Verdict.FASTER: "green",
    Verdict.REMOVED: "green",
}
MARKS = {Verdict.NOT_SIGNIFICANT: "~", Verdict.TOO_FEW: "?"}
MAX_FUSIONS, _SHOWN_KERNELS = 5, 4
_TIME, _DELTA, _PERCENT = 8, 9, 7
_INDENT = 10
_BREAKDOWN_ROWS, _IDLE_ROWS, _MEMORY_ROWS = 8, 5, 8


def print_comparison(
    comparison: Comparison, console: Console, by: str = "line", top: int | None = 15
) -> None:
    """Print the overall changes, then the largest changes of one table."""
    if top is not None:
        require_top(top)
    table = comparison.table(by)
    for name, side in zip(("base", "head"), comparison.matched.sides, strict=True):
        print_wrapped(console, f"{name}  {side_text(side)}", "bold", indent=len(f"{name}  "))
    for line in total_texts(comparison):
        print_wrapped(console, line, "bold")
    if by != "breakdown":
        _print_breakdown(comparison, console)
    console.print()
    _print_table(comparison, table, device_rows(table), console, top)
    if idle := idle_rows(table):
        console.print()
        _print_table(comparison, table, idle, console, min(top or _IDLE_ROWS, _IDLE_ROWS))
    _print_memory(comparison, console)
    if by in ("line", "kernel", "op"):
        _print_fusions(comparison, console)
    verdicts = {row.change.verdict for row in (*table.rows, *comparison.table("breakdown").rows)}
    if legend := [
        f"{mark} {verdict.label}" for verdict, mark in MARKS.items() if verdict in verdicts
    ]:
        print_line(console, ", ".join(legend), "dim")
    print_notes(notes(comparison, by), console)


def comparison_text(
    comparison: Comparison, by: str = "line", top: int | None = 15, width: int = 120
) -> str:
    """Return the comparison as a terminal of a width shows it."""
    file = io.StringIO()
    print_comparison(comparison, text_console(file, width), by, top)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def _print_breakdown(comparison: Comparison, console: Console) -> None:
    table = comparison.table("breakdown")
    rows = [row for row in table.rows if row.change.verdict is not Verdict.EQUAL]
    if rows:
        _print_rows(comparison, table, rows[:_BREAKDOWN_ROWS], console, "wall time of a step")
    if len(rows) > _BREAKDOWN_ROWS:
        print_line(console, f"and {len(rows) - _BREAKDOWN_ROWS} more: --by breakdown", "dim")


def _print_table(
    comparison: Comparison, table: Table, of: tuple[Row, ...], console: Console, top: int | None
) -> None:
    """Print some rows of a table: those that changed, and the counts of verdicts."""
    rows = shown_rows(of)
    label = "idle time by" if of and of[0].subject.account == Account.IDLE else "by"
    print_line(console, f"{label} {table.by}: {count_text(of)}", "bold")
    shown = rows[:top]
    if shown:
        _print_rows(comparison, table, shown, console, table.by)
    if left := len(rows) - len(shown):
        print_line(console, f"and {left} more: --top {len(rows)}", "dim")


def _print_rows(
    comparison: Comparison, table: Table, rows: Sequence[Row], console: Console, heading: str
) -> None:
    print_line(console, _columns("base", "head", "change", "", " ") + heading, "bold")
    for row in rows:
        texts, style = row_texts(comparison, table, row), STYLES.get(row.change.verdict, "")
        mark = MARKS.get(row.change.verdict, " ")
        part = texts.percent or (texts.verdict if row.change.is_change else "")
        line = Text(_columns(texts.base, texts.head, texts.delta, part, mark), style=style)
        name, room = printable(texts.name), max(console.width - len(line), 1)
        line.append(middle(name, room) if table.by == "kernel" else name, "not dim default")
        if texts.code:
            line.append(printable(f"  {texts.code}"), "dim default")
        console.print(line, no_wrap=True, overflow="ellipsis")
        if texts.details:
            print_line(console, printable(f"{'':{_INDENT}}{details_text(texts)}"), "dim")


def _print_memory(comparison: Comparison, console: Console) -> None:
    rows = [] if comparison.memory is None else memory_rows(comparison.memory)
    if not rows:
        return
    console.print()
    print_line(console, "memory at the peak by line", "bold")
    print_line(console, _columns("base", "head", "change", "", " ") + "line", "bold")
    for base, head, change, name, code in rows[:_MEMORY_ROWS]:
        line = Text(_columns(base, head, change, "", " ") + printable(name))
        line.append(printable(f"  {code}"), "dim")
        console.print(line, no_wrap=True, overflow="ellipsis")
    if len(rows) > _MEMORY_ROWS:
        print_line(console, f"and {len(rows) - _MEMORY_ROWS} more: --format json", "dim")


def _columns(base: str, head: str, delta: str, part: str, mark: str) -> str:
    numbers = f"{base:>{_TIME}}  {head:>{_TIME}}  {delta:>{_DELTA}}  {part:>{_PERCENT}}"
    return f"{numbers} {mark} "


def _print_fusions(comparison: Comparison, console: Console) -> None:
    fusions = comparison.fusions
    if not fusions:
        return
    console.print()
    print_line(console, f"fusions that changed: {len(fusions)}", "bold")
    for fusion in fusions[:MAX_FUSIONS]:
        print_wrapped(console, change_text(fusion.change), STYLES.get(fusion.change.verdict, ""))
        for line in fusion_texts(fusion):
            print_wrapped(console, line, indent=_INDENT)
    if len(fusions) > MAX_FUSIONS:
        print_line(console, f"and {len(fusions) - MAX_FUSIONS} more: --format json", "dim")


def fusion_texts(fusion: FusionChange) -> list[str]:
    """Return the launches before and now, a line each."""
    change = fusion.change
    return [
        *_side_lines("before", fusion.base, change.base_steps),
        *_side_lines("now", fusion.head, change.head_steps),
        *map(_not_fused_line, fusion.not_fused[:_SHOWN_KERNELS]),
    ]


def _not_fused_line(pair: NotFused) -> str:
    why = barrier_name(pair.barrier, pair.reason)
    return f"  not fused  {pair.writer} -> {pair.reader}: {why}"


def _side_lines(name: str, kernels: tuple[FusedKernel, ...], steps: int) -> list[str]:
    lines = [f"  {name:<6}  {kernel_text(each, steps)}" for each in kernels[:_SHOWN_KERNELS]]
    left = len(kernels) - _SHOWN_KERNELS
    return [*lines, f"          and {left} more"] if left > 0 else lines
