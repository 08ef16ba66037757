"""Owns the table of compilations that a terminal shows: a column for each phase that took time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from profiler_ext.exporters.columns import BETWEEN
from profiler_ext.exporters.compile_texts import detail_texts, name_text
from profiler_ext.exporters.display_text import time_text
from profiler_ext.exporters.drawing import Drawing
from profiler_ext.exporters.rich_parts import Group, Padding, RenderableType, Text
from profiler_ext.exporters.table_texts import records
from profiler_ext.exporters.top_table import TIME
from profiler_ext.printable import printable
from profiler_ext.records import CompilePhase

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


def phases_of(rows: Iterable[Mapping[str, Any]]) -> list[CompilePhase]:
    """Return the phases that took time in some rows of the table ``compiles``."""
    listed = list(rows)
    return [phase for phase in CompilePhase if any(row[f"{phase}_ns"] for row in listed)]


def compile_table(drawing: Drawing) -> RenderableType:
    """Return some compilations, each with its times in one line and the rest below.

    Args:
        drawing: what is shown, and where; where that is narrow they have the whole time alone.
    """
    rows, left = records(drawing.shown), len(drawing.whole) - len(drawing.shown)
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
        name = printable(f"{rank}{name_text(row, settings)}")
        line = _line(times, widths, name)
        texts = [Text(each, style="dim") for each in detail_texts(row, settings)]
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
