"""The rows of the comparison: our estimate of a call beside what was counted in it."""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from benchmarks.roofline_counts import Row, counts, function_of


def estimated(analysis: Any) -> Iterator[Row]:
    """Yield what we say of each kernel, in the order in which they ran."""
    from profiler_ext.rooflines.estimates import estimate
    from profiler_ext.rooflines.rooflines import rooflines

    launches, whole, found = analysis.launches, estimate(analysis), rooflines(analysis)
    for row in range(len(launches)):
        if launches.kind[row] in ("memcpy", "memset") or launches.name[row].startswith("Mem"):
            continue
        yield {
            "name": launches.name[row],
            "kernel": launches.kernel[row],
            "kind": launches.kind[row],
            "call": int(whole.calls.number[row]),
            "duration_ns": int(launches.duration_ns[row]),
            "bytes": _plain(whole.bytes[row]),  # of its whole call, as are the operations
            "flops": _plain(whole.flops[row]),
            "unit": found.unit[row],
            "unit_evidence": found.unit_evidence[row],
            "bound": found.bound[row],
            "roofline_ns": _plain(found.roofline_ns[row]),
            "could_save_ns": _plain(found.could_save_ns[row]),
        }


def _plain(value: Any) -> int | None:
    import numpy as np

    return None if value is np.ma.masked else int(value)


def most_expensive(kernels: list[Row], count: int) -> set[str]:
    """Return the functions of the calls that took most time, of those that have an estimate."""
    took: Counter[str] = Counter()
    functions: dict[str, set[str]] = defaultdict(set)
    for call in by_call(kernels).values():
        if call[0]["bytes"] is None:
            continue
        main = max(call, key=lambda kernel: kernel["duration_ns"])
        took[main["name"]] += sum(kernel["duration_ns"] for kernel in call)
        functions[main["name"]] |= {function_of(kernel["name"]) for kernel in call}
    return {f for name, _ in took.most_common(count) for f in functions[name]}


def by_call(kernels: list[Row]) -> dict[int, list[Row]]:
    """Return the kernels of each call."""
    calls: dict[int, list[Row]] = defaultdict(list)
    for kernel in kernels:
        calls[kernel["call"]].append(kernel)
    return calls


def joined(
    name: str, kernels: list[Row], wanted: set[str], options: argparse.Namespace
) -> list[Row]:
    """Return one row for each different kernel: our estimate of its call, and what was counted."""
    measured = counts(options.out / f"{name}.ncu.csv")
    expected = Counter(function_of(kernel["name"]) for kernel in kernels)
    seen: Counter[str] = Counter()
    for kernel in kernels:
        function = function_of(kernel["name"])
        # Where its time was over, ncu has counted in the first of them.
        if seen[function] < len(measured[function]) <= expected[function]:
            kernel["counted"] = measured[function][seen[function]]
        seen[function] += 1
    for function, found in measured.items():
        if len(found) > expected[function]:
            print(f"{name}: {function} ran {len(found)} times under ncu, {expected[function]} here")
    return list(_rows(name, kernels, wanted, options))


def _rows(
    model: str, kernels: list[Row], wanted: set[str], options: argparse.Namespace
) -> Iterator[Row]:
    groups: dict[tuple[str, int, int], list[list[Row]]] = defaultdict(list)
    for call in by_call(kernels).values():
        main = max(call, key=lambda kernel: kernel["duration_ns"])
        if main["bytes"] is not None and function_of(main["name"]) in wanted:
            groups[main["name"], main["bytes"], main["flops"] or 0].append(call)
    for (name, moved, flops), calls in groups.items():
        if not options.dry and not any(_is_counted(call) for call in calls):
            continue
        first = max(calls[0], key=lambda kernel: kernel["duration_ns"])
        total = [sum(kernel["duration_ns"] for kernel in call) for call in calls]
        row = {"model": model, "name": name, "calls": len(calls), "bytes": moved, "flops": flops}
        row |= {key: first[key] for key in ("kind", "unit", "unit_evidence", "bound")}
        row |= {"duration_ns": sum(total) / len(calls)}
        row |= {"roofline_ns": _sum(calls[0], "roofline_ns")}
        for key in ("dram", "l2", "scalar", "tensor", "tensor_by", "ncu_ns"):
            row[key] = _mean_count(calls, key)
        yield row


def _sum(call: list[Row], key: str) -> int | None:
    known = [kernel[key] for kernel in call if kernel[key] is not None]
    return sum(known) if known else None


def _mean_count(calls: list[list[Row]], key: str) -> Any:
    whole = [call for call in calls if _is_counted(call)]
    found = [kernel["counted"] for call in whole for kernel in call]
    if key == "tensor_by":
        return sorted({unit for each in found for unit in each[key]})
    return sum(each[key] for each in found) / len(whole) if whole else None


def _is_counted(call: list[Row]) -> bool:
    return all("counted" in kernel for kernel in call)


def write_table(rows: list[Row], options: argparse.Namespace) -> None:
    """Write the rows as JSON and as Markdown."""
    (options.out / "table.json").write_text(json.dumps(rows, indent=1))
    heads = ["model", "kernel", "unit", "bound", "us", "MB est.", "DRAM", "est./DRAM", "L2"]
    heads += ["GFLOP est.", "tensor", "fp32", "est./counted", "tensor inst."]
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for row in sorted(rows, key=lambda r: (r["model"], -r["duration_ns"] * r["calls"])):
        lines.append("| " + " | ".join(_cells(row)) + " |")
    (options.out / "table.md").write_text("\n".join(lines) + "\n")


def _cells(row: Row) -> list[str]:
    counted = None if row["tensor"] is None else max(row["tensor"], row["scalar"])
    return [
        row["model"],
        f"`{row['name'][:60]}` x{row['calls']}",
        row["unit"] or "-",
        row["bound"] or "-",
        f"{row['duration_ns'] / 1e3:.1f}",
        scaled(row["bytes"], 1e6),
        scaled(row["dram"], 1e6),
        _ratio(row["bytes"], row["dram"]),
        scaled(row["l2"], 1e6),
        scaled(row["flops"], 1e9),
        scaled(row["tensor"], 1e9),
        scaled(row["scalar"], 1e9),
        _ratio(row["flops"], counted),
        ", ".join(row["tensor_by"] or ()) or "-",
    ]


def scaled(value: float | None, by: float) -> str:
    """Return a number in a larger unit, as text."""
    return "-" if value is None else f"{value / by:.3g}"


def _ratio(value: float | None, by: float | None) -> str:
    return f"{value / by:.2f}" if value and by else "-"
