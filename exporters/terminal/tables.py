"""Tables in a terminal: one drawing function per kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from profiler_ext.exporters.table_kinds import TableKind
from profiler_ext.exporters.terminal.columns import (
    BETWEEN,
    Drawing,
    Name,
    Number,
    Row,
    bar_text,
    bar_width,
    number,
    part_of,
    table_of,
    time_cell,
)
from profiler_ext.exporters.terminal.console import Group, Padding, RenderableType, Table, Text
from profiler_ext.exporters.views import between, compiles, rooflines, summary
from profiler_ext.exporters.views.formatting import (
    PHASE_STYLES,
    SCOPE_COLORS,
    gap_text,
    kernel_text,
    labels,
    middle,
    path_end,
    percent_text,
    range_text,
    short_kernel,
    short_path,
    short_phase,
    start,
    time_text,
)
from profiler_ext.printable import printable
from profiler_ext.records.compiles import CompilePhase
from profiler_ext.records.recording import Settings
from profiler_ext.records.vocabulary import Phase, Scope

SCOPE_STYLES = {scope: color.middle for scope, color in SCOPE_COLORS.items()}
TIME, PART, ROOFLINE, _RANGE = 7, 6, 11, 17
_GROUP = 12
STEP_PART = "of the step"
_LEAST_WIDTHS = {"file": 18, "code": 28, "kernel": 30, "name": 30, "module": 24}
_NARROW_LEAST_WIDTHS = {"file": 16, "code": 14, "kernel": 20, "name": 20, "module": 18}
_NARROW_WIDTH, _NARROW_NAMES_WIDTH = 96, 112
_FIRST_PHASES = (Phase.FORWARD, Phase.BACKWARD)
_FEW_PHASES, _OTHER_PHASES = "few phases", "other phases"
_SAVED, _SAVED_NARROW = "max saving", "saving"
_LEAST_NAME_WIDTH = 24
HEADS = {
    CompilePhase.DYNAMO: "Dynamo",
    CompilePhase.AOT_AUTOGRAD: "AOT",
    CompilePhase.INDUCTOR: "Inductor",
    CompilePhase.KERNELS: "kernels",
    CompilePhase.AUTOTUNING: "tuning",
    CompilePhase.CUDA_GRAPHS: "graphs",
    CompilePhase.OTHER: "other",
}
_PHASES_MIN_WIDTH = 72
# What the rows of a table are a part of, where that is not the device's busy time
_WHOLES = {"idle": "idle", "cause": "idle", "communication": "total", "skew": "total"}


def top_table(drawing: Drawing) -> Table:
    """Return the largest rows of a summing table, and a row for the rest."""
    kind, whole, shown = drawing.kind, drawing.whole, drawing.shown
    rows, every = summary.records(shown), summary.records(whole)
    measured = measures(
        sum(row["duration_ns"] for row in every), _WHOLES.get(kind.by or "", "busy")
    )
    numbers = [
        *measured,
        *_collective_numbers(rows),
        *(_kernel_numbers(rows) if "min_ns" in whole else ()),
        *_phase_numbers(kind, every),
        _bar(drawing),
        *roofline_numbers(rows, drawing.console.width),
    ]
    table = table_of(rows, _names(drawing, rows), numbers, drawing.console.width)
    if len(whole) > len(shown):
        _add_rest(table, every, rows, [*measured, *_phase_numbers(kind, every)])
    return table


def _add_rest(
    table: Table, every: Sequence[Row], rows: Sequence[Row], added_up: Sequence[Number]
) -> None:
    """Add a row for the rest: count, time, phases."""
    times = ("duration_ns", "per_step_ns", *(phase for phase in Phase if phase in every[0]))
    rest = {n: sum(row[n] for row in every) - sum(row[n] for row in rows) for n in times}
    cells: dict[str, Any] = {column.heading: column.cell(rest) for column in added_up}
    headings = [str(column.header) for column in table.columns]
    more = Text(f"({len(every) - len(rows)} more)")
    table.add_row(more, *(cells.get(heading, "") for heading in headings[1:]), style="dim")


def measures(total_ns: float, of: str = "busy") -> list[Number]:
    """Return the columns of every table: time per step, and its part of the whole."""
    return [
        number("time/step", lambda row: time_cell(row["per_step_ns"]) or "0 ns", 0, TIME),
        number(f"% {of}", part_of(total_ns), 0, PART),
    ]


def roofline_numbers(rows: Sequence[Row], width: int) -> list[Number]:
    """Return the roofline and savings columns; savings get room first."""
    roofline = number("roofline", rooflines.roofline_text, 2, ROOFLINE)
    savings = number(_SAVED_NARROW if width < _NARROW_WIDTH else _SAVED, _savings_per_step, 1, TIME)
    has_rooflines = any(row.get("bound") for row in rows)
    return [each for each in (roofline, savings) if has_rooflines and _has_values(each, rows)]


def _savings_per_step(row: Row) -> str:
    saved = row.get("could_save_ns")
    of_step = saved * row["per_step_ns"] / row["duration_ns"] if saved else None
    return rooflines.savings_text({"could_save_ns": of_step})


def _has_values(column: Number, rows: Sequence[Row]) -> bool:
    return any(column.cell(row).plain for row in rows)


def _bar(drawing: Drawing) -> Number:
    kind = drawing.kind

    def parts(row: Row) -> Mapping[str, float]:
        if not kind.has_phases:
            return {SCOPE_STYLES[Scope.IDLE]: row["duration_ns"]}
        return {PHASE_STYLES[phase]: row[phase] for phase in Phase}

    names_first = "kernel" in kind.keys or drawing.console.width < _NARROW_NAMES_WIDTH
    return bar(parts, drawing, 4 if names_first else 3)


def bar(parts: Callable[[Row], Mapping[str, float]], drawing: Drawing, order: int) -> Number:
    """Return a column of bars, scaled to the steps' wall time."""
    width = max(bar_width(drawing.console), len(STEP_PART))

    def cell(row: Row) -> Text:
        return bar_text(parts(row), drawing.wall_ns, width, drawing.console)

    return Number(STEP_PART, width, cell, order, justify="left")


def _phase_numbers(kind: TableKind, rows: Sequence[Row]) -> list[Number]:
    if "phase" in kind.keys or not kind.has_phases or "kernel" in kind.keys:
        return []
    return phase_numbers(rows, 1)


def phase_numbers(rows: Sequence[Row], order: int) -> list[Number]:
    """Return the phase columns, which sum to a row's time.

    Forward and backward come first, with the sum of the others, which have columns of their own
    where there is room.
    """
    spent = [phase for phase in Phase if any(row.get(phase) for row in rows)]
    first = [phase for phase in spent if phase in _FIRST_PHASES]
    others = [phase for phase in spent if phase not in _FIRST_PHASES]
    columns = [_phase_number(phase, order, _FEW_PHASES) for phase in first]
    if others:
        rest = number("rest", _phase_times(*others), order, TIME)
        columns.append(replace(rest, group=_FEW_PHASES, stands_for=_OTHER_PHASES))
    return [*columns, *(_phase_number(phase, 4, _OTHER_PHASES) for phase in others)]


def _phase_number(phase: Phase, order: int, group: str) -> Number:
    style = PHASE_STYLES[phase]
    column = number(short_phase(phase), _phase_times(phase), order, TIME, style)
    return replace(column, group=group)


def _phase_times(*phases: Phase) -> Callable[[Row], str]:
    """Return a function from a row to its time per step in phases."""

    def cell(row: Row) -> str:
        of_step = row["per_step_ns"] / row["duration_ns"] if row["duration_ns"] else 0
        return time_cell(sum(row.get(phase, 0) for phase in phases) * of_step)

    return cell


def _kernel_numbers(rows: Sequence[Row]) -> list[Number]:
    """Return launch statistics, rates and launch shapes."""
    columns = [
        number("launches", lambda row: f"{row['launches']:,}", 2),
        number("median", lambda row: time_cell(row.get("median_ns") or 0), 2, TIME),
        number("range", lambda row: range_text(row["min_ns"], row["max_ns"]), 4, _RANGE),
        number("GB/s", lambda row: _rate(row.get("est_gb_per_s")), 3, 5),
        number("TFLOP/s", lambda row: _rate(row.get("est_tflop_per_s")), 3),
        number("grid", lambda row: row.get("grid") or "", 5, 11),
        number("block", lambda row: row.get("block") or "", 5, 8),
        number("registers", lambda row: _integer(row.get("registers_per_thread")), 5),
        number("shared mem.", lambda row: _integer(row.get("shared_memory_bytes")), 5),
    ]
    return [column for column in columns if _has_values(column, rows)]


def _collective_numbers(rows: Sequence[Row]) -> list[Number]:
    """Return exposed, overlapped and waiting time, and the process group if there are several."""
    words = ("exposed", "overlapped", "waiting")
    times = [
        number(word, _per_step(f"{word}_ns"), 1, TIME)
        for word in words
        if any(row.get(f"{word}_ns") is not None for row in rows)
    ]
    groups = {row.get("process_group") for row in rows}
    return [number("group", _group, 1, _GROUP), *times] if len(groups) > 1 else times


def _group(row: Row) -> str:
    return middle(printable(row["process_group"] or "unknown"), _GROUP)


def _per_step(name: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        took = row.get(name)
        return "" if took is None else time_cell(took / row["steps"] / row.get("ranks", 1))

    return cell


def _rate(value: float | None) -> str:
    return "" if not value else rooflines.figure(value)


def _integer(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _names(drawing: Drawing, rows: Sequence[Row]) -> list[Name]:
    kind = drawing.kind
    least = _NARROW_LEAST_WIDTHS if drawing.console.width < _NARROW_NAMES_WIDTH else _LEAST_WIDTHS
    texts = list(zip(*(labels(kind, row, drawing.settings) for row in rows), strict=True))
    names = []
    for (column, heading), of_rows in zip(kind.shown, texts, strict=True):
        cut = {"file": path_end, "code": start}.get(column, middle)
        names.append(Name(heading, of_rows, cut, least.get(column, 16)))
    if kind.shown[0][0] != "kernel":
        return names[:2]
    first = Name(kind.headings[0], tuple(map(kernel_text, rows)), _cut_kernel, least["kernel"])
    return [first, *([_places(rows, drawing.settings)] if kind.by == "site" else ())]


def _places(rows: Sequence[Row], settings: Settings) -> Name:
    """Return the modules of call sites, or else lines."""
    texts = (_place(row, settings) for row in rows)
    return Name("module or line", tuple(texts), path_end, 20)


def _place(row: Row, settings: Settings) -> str:
    if row["module"]:
        return str(row["module"])
    return "" if row["file"] is None else f"{short_path(row['file'], settings)}:{row['line']}"


def _cut_kernel(text: str, width: int) -> str:
    """Cut a kernel's name: templates at the end, others in the middle."""
    return (start if "<" in text else middle)(text, width)


def record_table(drawing: Drawing) -> RenderableType:
    """Return the first rows of a table: names, then columns."""
    rows, left = summary.records(drawing.shown), len(drawing.whole) - len(drawing.shown)
    (first, heading), *others = drawing.kind.shown
    labels = [_text(row, first, drawing.settings) or _unnamed(row, drawing) for row in rows]
    every = (_column(at, *each, rows, drawing.settings) for at, each in enumerate(others))
    numbers = [each for each in every if any(each.cell(row).plain for row in rows)]
    table = table_of(
        rows, [Name(heading, labels, middle, _LEAST_NAME_WIDTH)], numbers, drawing.console.width
    )
    return Group(table, *([Text(f"({left:,} more)", style="dim")] if left > 0 else []))


def _unnamed(row: Row, drawing: Drawing) -> str:
    return f"({gap_text(row['gap'])})" if row.get("gap") else f"({drawing.kind.unnamed})"


def _column(at: int, name: str, heading: str, rows: Sequence[Row], settings: Settings) -> Number:
    """Return a column; the first ones have priority."""
    width = max((len(_text(row, name, settings)) for row in rows), default=0)
    return number(heading, lambda row: _text(row, name, settings), at, width)


def _text(row: Row, name: str, settings: Settings) -> str:
    value: Any = row[name]
    if name == "kernel":
        value = kernel_text(row) if value else short_kernel(row["name"])
    if value is None or value == "":
        return ""
    if name.endswith("_ns"):
        return time_text(value)
    if name == "file":
        return f"{short_path(value, settings)}:{row['line']}"
    if name in ("mfu", "share") or name.endswith("fraction"):
        return percent_text(value, 1)
    if name == "est_flops":
        return rooflines.figure(value / 1e12)
    return f"{value:,}" if isinstance(value, int) else str(value)


def between_table(drawing: Drawing) -> RenderableType:
    """Return the buffers between kernels: what each costs, its kernels, why these are two."""
    rows, left = summary.records(drawing.shown), len(drawing.whole) - len(drawing.shown)
    widths = [len(_SAVED), TIME]
    indent = sum(widths) + BETWEEN * len(widths)
    half = (drawing.console.width - indent - len(" -> ")) // 2
    parts: list[RenderableType] = [
        Text(_line([_SAVED, "MB"], widths, "stored at -> loaded at"), style="bold")
    ]
    for row in rows:
        saving = row["could_save_per_step_ns"]
        numbers = [time_text(saving) if saving else "", f"{row['read_bytes'] / 1e6:.2f}"]
        sides = (_side(row, prefix, drawing.settings) for prefix in ("", "reader_"))
        places = " -> ".join(path_end(side, half) for side in sides)
        parts.append(Text(_line(numbers, widths, printable(places))))
        kernels = " -> ".join(middle(row[name], half) for name in ("kernel", "reader_kernel"))
        parts += (
            Padding(Text(printable(each), style="dim"), (0, 0, 0, indent))
            for each in (kernels, between.barrier_name(row["barrier"], row["reason"]))
        )
    if left > 0:
        parts.append(Text(f"({left:,} more)", style="dim"))
    return Group(*parts)


def _side(row: Row, prefix: str, settings: Settings) -> str:
    """The line of one of the two kernels, and its module."""
    file, line, module = (row[prefix + name] for name in ("file", "line", "module"))
    place = "(no line)" if file is None else f"{short_path(file, settings)}:{line}"
    return f"{place} {module}" if module else place


def phases_of(rows: Iterable[Mapping[str, Any]]) -> list[CompilePhase]:
    """Return the compile phases with time in rows of ``compiles``."""
    listed = list(rows)
    return [phase for phase in CompilePhase if any(row[f"{phase}_ns"] for row in listed)]


def compile_table(drawing: Drawing) -> RenderableType:
    """Return compilations, times on one line and details below; narrow ones without phases."""
    rows, left = summary.records(drawing.shown), len(drawing.whole) - len(drawing.shown)
    console, settings = drawing.console, drawing.settings
    phases = phases_of(rows) if console.width >= _PHASES_MIN_WIDTH else []
    heads = [("time", TIME), *((HEADS[each], max(TIME, len(HEADS[each]))) for each in phases)]
    widths = [width for _, width in heads]
    parts: list[RenderableType] = [
        Text(_line([head for head, _ in heads], widths, "what torch compiled"), style="bold")
    ]
    for row in rows:
        spent = (row["compile_ns"], *(row[f"{phase}_ns"] for phase in phases))
        times = [time_text(each) if each else "" for each in spent]
        rank = f"rank {row['rank']}: " if len({each["rank"] for each in rows}) > 1 else ""
        name = printable(f"{rank}{compiles.name_text(row, settings)}")
        line = _line(times, widths, name)
        texts = [Text(each, style="dim") for each in compiles.detail_texts(row, settings)]
        if len(line) > console.width:  # the name stands below its times, and is not broken
            line, texts = _line(times, widths, "").rstrip(), [Text(name), *texts]
        parts.append(Text(line))
        parts.extend(Padding(text, (0, 0, 0, TIME + BETWEEN)) for text in texts)
    if left:
        parts.append(Text(f"({left} more)", style="dim"))
    return Group(*parts)


def _line(cells: list[str], widths: list[int], name: str) -> str:
    numbers = (f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
    return (" " * BETWEEN).join((*numbers, name))
