"""Owns how near modules are to their roofline with all that is below them, as their tree has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from profiler_ext.exporters.module_tree import folded_paths, inclusive_times, summed_by_fold

Row = Mapping[str, Any]
Times = Mapping[str, int]
_MIN_KNOWN_PART = 2
"""As of one module, what is known of less than half of a row's time says nothing of it."""


def tree_rooflines(rows: Sequence[Row], fold: bool = True) -> dict[str, dict[str, Any]]:
    """Return the columns of rooflines of each row of the tree of modules, by its path.

    Args:
        rows: of the table ``by_module``, those of modules alone.
        fold: numbered modules of one parent and class are one row.
    """
    own = {row["module"]: row["duration_ns"] for row in rows}
    every = inclusive_times(own)
    folds = {path: path for path in every}
    if fold:
        folds = folded_paths(every, {row["module"]: row["module_class"] for row in rows})
    rooflines_found = _ModuleRooflines(rows, folds)
    return {path: rooflines_found.of(path, took) for path, took in summed_by_fold(own, folds).items()}


class _ModuleRooflines:
    """Sums what rooflines say of modules over what a tree shows as one."""

    def __init__(self, rows: Sequence[Row], folds: Mapping[str, str]) -> None:
        """Take the modules.

        Args:
            rows: of the table ``by_module``, those of modules alone.
            folds: path of each module, and of those above it, to its row of the tree.
        """
        summed = partial(summed_by_fold, folds=folds)
        bounded = [row for row in rows if row["bound"]]
        self._bounded = summed({row["module"]: _bounded_ns(row) for row in bounded})
        self._roofline = summed({row["module"]: row["roofline_ns"] for row in bounded})
        self._saved = summed({row["module"]: row["could_save_ns"] or 0 for row in rows})
        self._by_bound = {
            bound: summed({r["module"]: _bounded_ns(r) for r in bounded if r["bound"] == bound})
            for bound in dict.fromkeys(row["bound"] for row in bounded)
        }
        self._by_unit = {
            unit: summed({r["module"]: r["est_flops"] or 0 for r in bounded if r["unit"] == unit})
            for unit in dict.fromkeys(row["unit"] for row in bounded if row["unit"])
        }
        self._has_fractions = all(row.get("est_peak_fraction") for row in bounded)

    def of(self, path: str, inclusive_ns: int) -> dict[str, Any]:
        """Return the columns of rooflines of a row of the tree.

        Args:
            path: of the row.
            inclusive_ns: its time, with all that is below it.
        """
        saved, bounded = self._saved.get(path, 0), self._bounded.get(path, 0)
        if not bounded or _MIN_KNOWN_PART * bounded < inclusive_ns:
            return {"could_save_ns": saved}
        return {
            "could_save_ns": saved,
            "bound": _most(self._by_bound, path),
            "unit": _most(self._by_unit, path),
            "est_peak_fraction": self._roofline[path] / bounded if self._has_fractions else None,
        }


def _bounded_ns(row: Row) -> int:
    """Return the time of a module of which the roofline is known; of several ranks, all of it."""
    fraction, whole = row.get("est_peak_fraction"), int(row["duration_ns"])
    return round(row["roofline_ns"] / fraction) if fraction else whole


def _most(sums: Mapping[str, Times], path: str) -> str | None:
    return max(sums, key=lambda each: sums[each].get(path, 0), default=None)
