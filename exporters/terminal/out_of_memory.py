"""What was alive when memory ran out, as a line and as a screen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Any

from profiler_ext.attribution.places import SourceRoots
from profiler_ext.exporters.terminal.columns import Name, Number, Row, number, table_of
from profiler_ext.exporters.terminal.console import Group, RenderableType, Text
from profiler_ext.exporters.views.formatting import (
    middle,
    path_end,
    percent_text,
    short_path,
    size_text,
    start,
)
from profiler_ext.records.lineage import Frame
from profiler_ext.records.memory import AliveRow, MemoryGap, OutOfMemory
from profiler_ext.records.recording import Settings

_SIZE, _PART, _BLOCKS, _LARGEST, _FRAMES = 9, 6, 6, 3, 6


def line_of(report: OutOfMemory) -> str:
    """Return one line: what was asked for and where, and the largest rows."""
    failed = report.failed
    where = "" if failed.file is None else f" at {PurePath(failed.file).name}:{failed.line}"
    largest = (f"{size_text(row.size_bytes)} {_short(row)}" for row in report.alive[:_LARGEST])
    return (
        f"out of memory on device {failed.device}: {size_text(failed.requested_bytes)} asked for"
        f"{where}, {size_text(report.state.allocated_bytes)} allocated: {', '.join(largest)}"
    )


def _short(row: AliveRow) -> str:
    """Return the kind of a row, and its line or owner."""
    if row.file is not None:
        return f"{row.kind.label} {PurePath(row.file).name}:{row.line}"
    return f"{row.kind.label} ({row.owner})" if row.owner else row.kind.label


def out_of_memory_screen(report: OutOfMemory, top: int | None, width: int) -> RenderableType:
    """Return what was asked for and where, what was alive, and what was not in use."""
    settings = Settings(
        user_roots=report.user_roots, library_roots=report.library_roots, command=report.command
    )
    total = report.state.allocated_bytes
    kinds = _sums(report.alive, lambda row: row.kind.label)
    lines = _sums(report.alive, lambda row: _label(row, settings))
    shown = lines[:top]
    codes = [rows[0].code or "" for _, rows in shown]
    left = len(lines) - len(shown)
    return Group(
        *(Text(line, style="bold" if not at else "") for at, line in enumerate(_heading(report))),
        Text(),
        _table([rows for _, rows in kinds], [name for name, _ in kinds], [], total, width),
        Text(),
        _table([rows for _, rows in shown], [name for name, _ in shown], codes, total, width),
        *([Text(f"({left:,} more)", style="dim")] if left else []),
        Text(),
        *map(Text, _not_in_use(report)),
        *map(Text, _where(report, settings)),
        *(Text(f"Not told: {each}.") for each in report.missing),
    )


def _heading(report: OutOfMemory) -> Iterator[str]:
    failed, state = report.failed, report.state
    rank = f", rank {report.rank}" if report.rank else ""
    yield (
        f"Out of memory on device {failed.device}{rank}: {size_text(failed.requested_bytes)} "
        f"({failed.requested_bytes:,} bytes) asked for"
    )
    if failed.file is not None:
        code = f"  {failed.code}" if failed.code else ""
        yield f"  at {PurePath(failed.file).name}:{failed.line}{code}"
    of = [
        f"for {failed.purpose}" if failed.purpose else "",
        f"kernel {failed.kernel}" if failed.kernel else "",
        f"module {failed.module}" if failed.module else "",
        f"backward of {failed.autograd_node}" if failed.autograd_node else "",
    ]
    if any(of):
        yield "  " + ", ".join(filter(None, of))
    yield (
        f"  {size_text(state.allocated_bytes)} allocated ({state.allocated_bytes:,} bytes), "
        f"{size_text(state.reserved_bytes)} reserved, of {size_text(state.device_bytes)}"
    )


def _not_in_use(report: OutOfMemory) -> Iterator[str]:
    rounding = report.state.allocated_bytes - sum(row.requested_bytes for row in report.alive)
    yield (
        f"Of what is allocated, {size_text(rounding)} is rounding. Not allocated: "
        + ", ".join(f"{size_text(row.size_bytes)} {row.kind.label}" for row in report.unused)
        + f"; the largest free block has {size_text(report.failed.largest_free_bytes)}."
    )


def _where(report: OutOfMemory, settings: Settings) -> Iterator[str]:
    """Yield the model's and the program's frames, without those of torch and of its thread."""
    roots, failed = SourceRoots(settings), report.failed
    frames = [Frame(f.file, f.line, f.function) for f in (*failed.stack, *failed.caller)]
    own = [frame for frame in frames if roots.is_model(frame.file)]
    lines = [f"{short_path(f.file, settings)}:{f.line} in {f.function}" for f in own[:_FRAMES]]
    if lines:
        yield "The program was at " + ", called from ".join(lines)


def _sums(
    rows: Iterable[AliveRow], key: Callable[[AliveRow], str]
) -> list[tuple[str, list[AliveRow]]]:
    groups: dict[str, list[AliveRow]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return sorted(groups.items(), key=lambda each: -sum(row.size_bytes for row in each[1]))


def _label(row: AliveRow, settings: Settings) -> str:
    if row.file is not None:
        return f"{short_path(row.file, settings)}:{row.line}"
    if row.owner and row.gap == MemoryGap.HELD_BY_NAME:
        return f"({row.kind.label})"
    return f"({MemoryGap(row.gap).label if row.gap in list(MemoryGap) else row.kind.label})"


def _table(
    groups: Sequence[Sequence[AliveRow]],
    names: Sequence[str],
    codes: Sequence[str],
    total: int,
    width: int,
) -> RenderableType:
    rows: list[Row] = [_row(own) for own in groups]
    numbers: list[Number] = [
        number("alive", lambda row: size_text(row["size_bytes"]), 0, _SIZE),
        number("%", lambda row: percent_text(row["size_bytes"], total), 0, _PART),
        number("blocks", lambda row: f"{row['blocks']:,}", 1, _BLOCKS),
    ]
    columns = [Name("line" if codes else "kind", names, path_end if codes else middle, 18)]
    if codes:
        columns.append(Name("code", codes, start, 14))
        numbers.append(
            Number("kinds", 26, lambda row: Text(start(row["kinds"], 26)), 2, justify="left")
        )
    return table_of(rows, columns, numbers, width)


def _row(rows: Sequence[AliveRow]) -> dict[str, Any]:
    return {
        "size_bytes": sum(each.size_bytes for each in rows),
        "blocks": sum(each.blocks for each in rows),
        "kinds": ", ".join(dict.fromkeys(each.kind.label for each in rows)),
    }
