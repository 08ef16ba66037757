"""Owns how near modules are to their roofline with all that is below them, as their tree has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
Times = Mapping[str, int]
_PARTS = 2
"""As of one module, what is known of less than half of a row's time says nothing of it."""


class ModuleRooflines:
    """Sums what rooflines say of modules over what a tree shows as one."""

    def __init__(self, rows: Sequence[Row], summed: Callable[[Times], Times]) -> None:
        """Take the modules.

        Args:
            rows: of the table ``by_module``, those of modules alone.
            summed: adds up an amount of each module for each row of the tree.
        """
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
            path: what ``summed`` calls it.
            inclusive_ns: its time, with all that is below it.
        """
        saved, bounded = self._saved.get(path, 0), self._bounded.get(path, 0)
        if not bounded or _PARTS * bounded < inclusive_ns:
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
