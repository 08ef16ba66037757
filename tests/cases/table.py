"""The table of the cases: what each ran, what was led to lines, what a name alone tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from profiler_ext.records.analysis import Analysis

COLUMNS = ("case", "launches", "device us", "to lines", "by name", "ok", "gaps and what is missing")
TORCH_COLUMNS = ("by torch", "as ours")


def placed_by_name(analysis: Analysis) -> float:
    """Return the part of the compiled graphs' device time that kernel names place alone.

    A name places a launch when one call site in all graphs has that kernel, and only one.
    """
    graphs, launches = analysis.recording.graphs, analysis.launches
    sites = [site for graph in graphs if graph.provenance for site in graph.provenance.call_sites]
    times = Counter(site.kernel for site in sites)
    compiled = ~np.ma.getmaskarray(launches.graph)
    unique = launches.name.where(*(name for name, count in times.items() if count == 1))
    total = int(launches.duration_ns[compiled].sum())
    return int(launches.duration_ns[compiled & unique].sum()) / total if total else 0.0


def table_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the rows as a table of text, with the totals below."""
    every = list(rows)
    is_compared = any("by_torch" in row for row in every)
    head = (*COLUMNS[:5], *(TORCH_COLUMNS if is_compared else ()), *COLUMNS[5:])
    cells = [head, *(_cells(row, is_compared=is_compared) for row in every)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(head) - 1)]
    lines = ["  ".join(_aligned(line, widths)).rstrip() for line in cells]
    good = sum(bool(row.get("ok")) for row in every)
    return "\n".join([*lines, f"{good} of {len(every)} cases are good", ""])


def _aligned(line: tuple[str, ...], widths: list[int]) -> list[str]:
    name, *numbers, ok, _ = line
    right = [text.rjust(width) for text, width in zip(numbers, widths[1:-1], strict=True)]
    return [name.ljust(widths[0]), *right, ok.ljust(widths[-1]), line[-1]]


def _cells(row: Mapping[str, Any], *, is_compared: bool) -> tuple[str, ...]:
    by_torch = (_percent(row.get("by_torch")), _percent(row.get("by_torch_agreeing")))
    return (
        str(row["case"]),
        str(row.get("launches", "")),
        f"{row['device_us']:.1f}" if "device_us" in row else "",
        _percent(row.get("lines")),
        _percent(row.get("by_name")),
        *(by_torch if is_compared else ()),
        "yes" if row.get("ok") else "NO",
        _remarks(row),
    )


def _percent(part: float | None) -> str:
    # Rounded down: 99.99% is not all.
    return "" if part is None else f"{int(part * 10_000) / 100:.2f}%"


def _remarks(row: Mapping[str, Any]) -> str:
    gaps = [f"{gap} {ns / 1000:.1f} us" for gap, (_, ns) in row.get("gaps", {}).items()]
    missing = [f"missing: {text}" for text in row.get("missing", ())]
    errors = [row["error"]] if "error" in row else []
    return "; ".join(" ".join(text.split())[:120] for text in (*gaps, *missing, *errors))
