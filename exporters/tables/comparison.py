"""The tables of a comparison: one row per subject, with both sides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler_ext.comparison.comparison import Comparison
from profiler_ext.comparison.records import Change, Row, Subject
from profiler_ext.exporters.tables.schema import Column, frame
from profiler_ext.exporters.tables.table import FLOAT, INT, TEXT, Table, gather
from profiler_ext.records.vocabulary import Phase

# Columns that may differ between the sides, by table.
_OF_BOTH: Mapping[str, tuple[str, ...]] = {
    "line": ("file", "line", "function", "code"),
    "module": ("module", "module_class"),
    "layer": ("module", "module_class"),
    "op": ("aten_op",),
    "kernel": ("kernel", "kind"),
    "compile": ("file", "line", "function", "kind"),
}
_OF_ROW: Mapping[str, tuple[str, ...]] = {
    "breakdown": ("scope", "level", "category"),
    "phase": ("phase",),
}
_NAMED = (
    Column("file", TEXT, "source file, below the root that it lies under"),
    Column("line", INT, "the line there"),
    Column("function", TEXT, "the function there"),
    Column("code", TEXT, "the text of the line, as it was recorded"),
    Column("module", TEXT, "the module's path; empty for the model itself"),
    Column("module_class", TEXT, "the module's class"),
    Column("aten_op", TEXT, "the ATen op"),
    Column("kernel", TEXT, "Inductor's name of the kernel, or the event's"),
    Column("kind", TEXT, "what the launch is; of compile time what torch was at"),
)
_OF_ANY = (
    Column("phase", TEXT, "part of the training step"),
    Column("scope", TEXT, "part of the wall time, as in `coverage`"),
    Column("level", TEXT, "how precisely it is attributed"),
    Column("category", TEXT, "what it was attributed to, or the gap"),
    Column("account", TEXT, "which part of wall time the row is of: see words.md"),
    Column("cause", TEXT, "why the device was idle"),
    Column("gap", TEXT, "why there is no line, module or op"),
    Column("match", TEXT, "by what the two sides are known to be the same: see words.md"),
    Column("verdict", TEXT, "what the difference came to: see words.md"),
    Column("modules", TEXT, "the modules with most of its time, numbers as `*`"),
    Column("base_per_step_ns", FLOAT, "time of the base's mean step, on one rank"),
    Column("head_per_step_ns", FLOAT, "the same of the head"),
    Column("delta_ns", FLOAT, "head less base"),
    Column("delta_fraction", FLOAT, "that as a part of the base; absent where the base has none"),
    Column("low_ns", FLOAT, "lower end of the difference's 95% interval; absent for too few steps"),
    Column("high_ns", FLOAT, "upper end of it"),
    Column("p_value", FLOAT, "how often noise alone gives such a difference"),
    Column("q_value", FLOAT, "the same among all rows: the rate of false discoveries"),
    Column("base_fraction", FLOAT, "part of the base's total time"),
    Column("head_fraction", FLOAT, "part of the head's total time"),
    Column(
        "base_ns", INT, "the base's time over all its steps; adds up to its step time breakdown"
    ),
    Column("head_ns", INT, "the same of the head"),
    Column("base_steps", INT, "over how many steps, each rank's for itself"),
    Column("head_steps", INT, "the same of the head"),
    Column("base_launches", INT, "how many launches have a part in it, over all steps"),
    Column("head_launches", INT, "the same of the head"),
)
_PHASES = tuple(
    Column(f"{phase}_delta_ns", FLOAT, f"the difference of the phase {phase.label}")
    for phase in Phase
)
COMPARED = {
    **{
        f"{side}_{c.name}": Column(f"{side}_{c.name}", c.dtype, f"{side}: {c.description}")
        for side in ("base", "head")
        for c in _NAMED
    },
    **{column.name: column for column in (*_OF_ANY, *_PHASES)},
}
_NUMBERS = tuple(column.name for column in _OF_ANY if column.dtype != TEXT)


def compared(comparison: Comparison, by: str) -> Table:
    """Return a table of a comparison, largest difference first."""
    table = comparison.table(by)
    whole = (table.total.base_per_step_ns, table.total.head_per_step_ns)
    rows = [_cells(row, whole) for row in table.rows]
    every = np.arange(len(rows))
    made = frame(
        {
            name: gather([row[name] for row in rows], every, COMPARED[name].dtype)
            for name in _names(by)
        }
    )
    made.attrs["total_delta_ns"] = table.total.delta_ns
    return made


def _names(by: str) -> tuple[str, ...]:
    both = (f"{side}_{name}" for side in ("base", "head") for name in _OF_BOTH.get(by, ()))
    phases = () if by in ("breakdown", "compile", "phase") else tuple(c.name for c in _PHASES)
    modules = ("modules",) if by in ("line", "op", "kernel") else ()
    words = ("match", "verdict", "account", "cause", "gap")
    return (*both, *_OF_ROW.get(by, ()), *words, *modules, *_NUMBERS, *phases)


def _cells(row: Row, whole: tuple[float, float]) -> dict[str, Any]:
    sides = (("base", row.base), ("head", row.head))
    named = {
        f"{side}_{column.name}": getattr(of or Subject(), column.name)
        for side, of in sides
        for column in _NAMED
    }
    subject = row.subject
    any_side = {
        name: getattr(subject, name)
        for name in ("phase", "scope", "level", "category", "account", "cause", "gap")
    }
    modules = ", ".join(row.modules) or None
    words = {"match": row.match, "verdict": row.change.verdict, "modules": modules}
    steps = row.change.base_steps, row.change.head_steps
    known = {p.phase: p.head_ns / steps[1] - p.base_ns / steps[0] for p in row.phases}
    phases = {f"{phase}_delta_ns": known.get(phase, 0.0) for phase in Phase}
    return named | any_side | words | _numbers(row.change, whole) | phases


def _numbers(change: Change, whole: tuple[float, float]) -> dict[str, float | int | None]:
    interval = change.interval
    base, head = change.base_per_step_ns, change.head_per_step_ns
    return {
        "base_per_step_ns": base,
        "head_per_step_ns": head,
        "delta_ns": change.delta_ns,
        "delta_fraction": change.fraction,
        **{
            name: getattr(interval, name) if interval else None
            for name in ("low_ns", "high_ns", "p_value", "q_value")
        },
        "base_fraction": base / whole[0] if whole[0] else None,
        "head_fraction": head / whole[1] if whole[1] else None,
        **{
            f"{side}_{name}": getattr(change, f"{side}_{name}")
            for name in ("ns", "steps", "launches")
            for side in ("base", "head")
        },
    }
