"""The module tree in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Any

from profiler_ext.exporters.terminal import console, tables
from profiler_ext.exporters.terminal.columns import Drawing, Name, Row, number, table_of, time_cell
from profiler_ext.exporters.views import formatting, modules, summary
from profiler_ext.records.vocabulary import Phase

_EACH, _EACH_WIDTH = "each (least - most)", 26
_LEAST_NAME = 22
_SHOWN_OUTLIERS = 3
_INDENT = "  "
_OUTLIER, _OF_MEDIAN = "! ", " the median"


def module_table(drawing: Drawing) -> console.Table:
    """Return modules as a tree, longest first, with inclusive and own times."""
    rows = summary.records(drawing.whole)
    models = drawing.settings.models
    drawn = tree_rows(rows, len(drawing.shown), drawing.depth, models)
    drawn += [_gap_row(row, drawing) for row in rows if _is_gap(row)]
    numbers = [
        *tables.measures(sum(row["duration_ns"] for row in rows)),
        number("itself", lambda row: time_cell(row.get("own_ns") or 0), 1, tables.TIME),
        *tables.phase_numbers(rows, 1),
        number(_EACH, lambda row: row.get("each", ""), 3, _EACH_WIDTH),
        tables.bar(_parts, drawing, 4),
        *tables.roofline_numbers(drawn, drawing.console.width),
    ]
    names = [
        Name("module", [row["label"] for row in drawn], _cut, _LEAST_NAME),
        Name("class", [row["class"] for row in drawn], formatting.middle, 0, 16),
    ]
    table = table_of(drawn, names, numbers, drawing.console.width)
    for line, row in zip(table.rows, drawn, strict=True):
        line.style = row.get("style", "")
    return table


def _cut(label: str, width: int) -> str:
    """Cut a name in its middle; an outlier first loses what its name and factor do without."""
    if len(label) > width and label.lstrip().startswith(_OUTLIER):
        label = label.lstrip().removesuffix(_OF_MEDIAN)
    return formatting.middle(label, width)


def _parts(row: Row) -> dict[str, float]:
    return {formatting.PHASE_STYLES[phase]: row.get(phase, 0) for phase in Phase}


def tree_rows(
    rows: Iterable[Row], most: int, depth: int | None, models: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return the tree's rows in display order.

    ``duration_ns`` is inclusive, ``own_ns`` is not and is per step; modules below ``depth`` count
    for their parent.
    """
    tree = _Tree([row for row in rows if not _is_gap(row)], modules.root_label(models))
    return tree.rows(most, depth)


class _Tree:
    """The tree of table rows, with each node's time by phase."""

    def __init__(self, rows: list[Row], name: str) -> None:
        self._name = name
        self._classes = {row["module"]: row["module_class"] for row in rows}
        own = {row["module"]: row["duration_ns"] for row in rows}
        self._of_step = next(
            (r["per_step_ns"] / r["duration_ns"] for r in rows if r["duration_ns"]), 0
        )
        self._every = modules.inclusive_times(own)
        self._folds = modules.folded_paths(self._every, self._classes)
        of_phases = {phase: {row["module"]: row[phase] for row in rows} for phase in Phase}
        self._phases = {p: modules.summed_by_fold(own, self._folds) for p, own in of_phases.items()}
        self._each_phase = {phase: modules.inclusive_times(own) for phase, own in of_phases.items()}
        self._rooflines = modules.tree_rooflines(rows)
        self._root = modules.module_tree(own, self._classes)
        self._is_empty = not rows

    def rows(self, most: int, depth: int | None) -> list[dict[str, Any]]:
        if self._is_empty:
            return []
        deepest = self._fitting(most) if depth is None else depth
        walk = _walk(self._root, self._name, deepest)
        return [row for each in walk for row in self._of_node(*each)]

    def _fitting(self, most: int) -> int:
        """Return how deep the tree can be within ``most`` rows."""
        sizes = [len([*_walk(self._root, "", 0)])]
        while (size := len([*_walk(self._root, "", len(sizes))])) <= most and size > sizes[-1]:
            sizes.append(size)
        return len(sizes) - 1

    def _of_node(self, node: modules.ModuleNode, label: str, at: int) -> Iterator[dict[str, Any]]:
        times = f" x{node.modules}" if node.modules > 1 else ""
        yield {
            "label": f"{_INDENT * at}{label}{times}",
            "class": node.module_class or "",
            "duration_ns": node.inclusive_ns,
            "per_step_ns": node.inclusive_ns * self._of_step,
            "own_ns": node.own_ns * self._of_step,
            "each": self._each(node),
            **{phase.value: self._phases[phase].get(node.path, 0) for phase in Phase},
            **self._rooflines[node.path],
        }
        for outlier in node.outliers[:_SHOWN_OUTLIERS]:
            yield self._of_outlier(outlier, at + 1)

    def _of_outlier(self, outlier: modules.Outlier, at: int) -> dict[str, Any]:
        ratio = outlier.inclusive_ns / outlier.median_ns if outlier.median_ns else 0
        ratio_text = f"{ratio:.1f}x{_OF_MEDIAN}" if ratio else "the others take no time"
        return {
            "label": f"{_INDENT * at}{_OUTLIER}{outlier.path}: {ratio_text}",
            "class": "",
            "duration_ns": outlier.inclusive_ns,
            "per_step_ns": outlier.inclusive_ns * self._of_step,
            **{phase.value: own.get(outlier.path, 0) for phase, own in self._each_phase.items()},
            "style": "yellow",
        }

    def _each(self, node: modules.ModuleNode) -> str:
        """Return the median and range of folded modules."""
        times = [self._every[path] for path, fold in self._folds.items() if fold == node.path]
        if len(times) < 2:
            return ""
        usual, least, most = (
            time * self._of_step for time in (median(times), min(times), max(times))
        )
        return f"{formatting.time_text(usual)} ({formatting.range_text(least, most)})"


def _walk(
    root: modules.ModuleNode, name: str, depth: int
) -> Iterator[tuple[modules.ModuleNode, str, int]]:
    """Yield each node with its label and depth; a chain of single children is one node."""
    yield root, name, 0
    if depth:
        for below in root.below:
            yield from _below(below, below.name, depth - 1, 1)


def _below(
    node: modules.ModuleNode, label: str, depth: int, at: int
) -> Iterator[tuple[modules.ModuleNode, str, int]]:
    while not node.own_ns and len(node.below) == 1 and node.modules == 1:
        (node,) = node.below
        label = f"{label}.{node.name}"
    yield node, label, at
    if depth:
        for below in node.below:
            yield from _below(below, below.name, depth - 1, at + 1)


def _is_gap(row: Row) -> bool:
    return row["module"] is None


def _gap_row(row: Row, drawing: Drawing) -> dict[str, Any]:
    (why, *_) = formatting.labels(drawing.kind, row, drawing.settings)
    return {**row, "label": why, "class": "", "style": "dim"}
