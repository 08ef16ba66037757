"""What the rows of each question say: how far knock-out, samples and the cost model are off."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

__all__ = ["model_table", "ncu_table", "planted_table", "profile_table"]

Row = dict[str, Any]
WITHIN = 0.10  # of the truth, a planted line's time
NOTHING = 0.02  # of the kernel's time: a line that takes less takes nothing
POINTS = 0.02  # of a kernel's time, within which two samplings of a line agree
LEAST_NS = 10_000  # of a kernel, below which samples are few
WORST = 10
PAIRS = (
    ("cold", "ncu cold", "ours and ncu, each kernel alone, the cache emptied"),
    ("step", "cold", "ours, in the step and so"),
)


def cells(*values: object) -> str:
    """A row of a table in Markdown."""
    return (
        "| " + " | ".join(str(each).replace("\n", " ").replace("|", "/") for each in values) + " |"
    )


def _is_measured(row: Row) -> bool:
    return not {"failure", "tiny"} & row.keys()


def _failed(row: Row) -> str:
    why = f"failed: {row['failure']}" if "failure" in row else row["tiny"]
    return cells(row["name"], why)


# Planted lines


def truth_ns(row: Row) -> tuple[float, float, float]:
    """What the line takes: the median of the differences of neighbours, the least and the most."""
    pairs = zip(row["whole_ns"], row["without_ns"], strict=True)
    differences = sorted(whole - without for whole, without in pairs)
    return statistics.median(differences), differences[0], differences[-1]


def takes_nothing(row: Row) -> bool:
    """Tell whether the line takes no time that can be told from none."""
    median, least, most = truth_ns(row)
    return least <= 0 <= most or abs(median) < NOTHING * statistics.median(row["whole_ns"])


def said_ns(row: Row, key: str) -> float | None:
    """What knock-out says of all kernels; ``None`` where it does not say it of one."""
    values = [each[key] for each in row["kernels"]]
    return None if None in values else sum(values)


def is_right(row: Row, key: str) -> bool | None:
    """Tell whether that is the truth, within a tenth; ``None`` where there is nothing to save."""
    said, truth = said_ns(row, key), truth_ns(row)[0]
    if said is None or takes_nothing(row):
        return None
    return bool(abs(said - truth) <= WITHIN * abs(truth))


def off_of_kernel(row: Row, key: str) -> float | None:
    """How far that is from nothing, of the kernel's time; ``None`` where there is time to save."""
    said = said_ns(row, key)
    if said is None or not takes_nothing(row):
        return None
    return float(abs(said) / statistics.median(row["whole_ns"]))


def planted_table(rows: Sequence[Row]) -> str:
    """Each planted line, and how many are right."""
    lines = [
        cells("planted", "with us", "without us", "takes us", "at once us", "/ truth",
              "parts us", "/ truth", "model / truth", "alone / step", "why the model stays"),
        cells(*("---", *("---:",) * 9, "---")),
        *(_planted_line(row) if _is_measured(row) else _failed(row) for row in rows),
        "",
    ]  # fmt: skip
    good = list(filter(_is_measured, rows))
    for key, words in (("once_ns", "Taken out at once"), ("parts_ns", "Part by part")):
        judged = [right for row in good if (right := is_right(row, key)) is not None]
        lines.append(
            f"{words}: {sum(judged)} of {len(judged)} within {100 * WITHIN:.0f}% of the truth."
        )
        if off := [each for row in good if (each := off_of_kernel(row, key)) is not None]:
            lines[-1] += (
                f" Of {len(off)} more there is nothing to save: estimates within "
                f"{100 * max(off):.1f}% of the kernel."
            )
    lines.append(f"Not measured: {len(rows) - len(good)} of {len(rows)}. {_devices(good)}")
    return "\n".join(lines) + "\n"


def _planted_line(row: Row) -> str:
    median, least, most = truth_ns(row)
    nothing = takes_nothing(row)

    def against(key: str) -> str:
        said = said_ns(row, key)
        if said is None:
            return ""
        if nothing:
            return f"nothing to save, {100 * said / statistics.median(row['whole_ns']):.1f}%"
        return f"{said / median:.3f}"

    def us(key: str) -> str:
        said = said_ns(row, key)
        return "" if said is None else f"{said / 1e3:.1f}"

    apart = [each["alone_ns"] / each["step_ns"] for each in row["kernels"] if each["alone_ns"]]
    return cells(
        row["name"],
        f"{statistics.median(row['whole_ns']) / 1e3:.1f}",
        f"{statistics.median(row['without_ns']) / 1e3:.1f}",
        f"{median / 1e3:.1f} [{least / 1e3:.1f}, {most / 1e3:.1f}]",
        us("once_ns"), against("once_ns"), us("parts_ns"), against("parts_ns"),
        against("modelled_ns"),
        ", ".join(f"{each:.2f}" for each in apart),
        "; ".join(filter(None, (each["reason"] or each["once_reason"] for each in row["kernels"]))),
    )  # fmt: skip


def _devices(rows: Iterable[Row]) -> str:
    return ", ".join(sorted({f"{each['device']}" for each in rows if each.get("device")}))


# The cost model


def off_by(kernel: Row, key: Callable[[Row], object]) -> float:
    """The part of a kernel's time that the model has elsewhere, 0 to 1."""
    apart: dict[object, float] = defaultdict(float)
    for node in kernel["nodes"]:
        apart[key(node)] += node["measured_ns"] - node["modelled_ns"]
    return float(sum(map(abs, apart.values())) / 2 / kernel["step_ns"])


def line_of(node: Row) -> object:
    """The line of a node."""
    return node["file"], node["line"]


def op_of(node: Row) -> object:
    """A node, which is one op of its line."""
    return node["node"]


def percentile(values: Sequence[float], fraction: float) -> float:
    """The value at a fraction of all, by nearest rank."""
    ordered = sorted(values)
    return ordered[min(int(fraction * len(ordered)), len(ordered) - 1)]


def model_table(rows: Sequence[Row]) -> str:
    """How far the model is off by line and by op, of each model and of all; the worst kernels."""
    good = list(filter(_is_measured, rows))
    lines = [
        cells("model", "route", "kernels", "not measured", "of several lines", *_HEADS, *_HEADS)
    ]
    lines.append(cells("---", "---", *("---:",) * 9))
    found: dict[str, list[Row]] = defaultdict(list)
    for row in good:
        for route in dict.fromkeys(each["route"] for each in row["kernels"]):
            own = [{**each, "model": row["name"]} for each in row["kernels"]
                   if each["route"] == route]  # fmt: skip
            found[route] += own
            lines.append(_model_line(row["name"], route, own))
    lines += [_model_line("all", route, own) for route, own in found.items()]
    lines += [_failed(row) for row in rows if not _is_measured(row)]
    for route, own in found.items():
        lines += ["", f"By {route}, the kernels in which most time is at another line:", ""]
        lines += _worst(own)
    reasons = defaultdict[str, int](int)
    for each in (kernel for own in found.values() for kernel in own if kernel["reason"]):
        reasons[f"{each['route']}: {each['reason']}"] += 1
    lines += ["", *(f"- {count} not measured by {why}" for why, count in sorted(reasons.items()))]
    notes = [f"{row['name']}: {note}" for row in good for note in row.get("notes", ())]
    lines += ["", *notes, _devices(good)]
    return "\n".join(lines) + "\n"


_HEADS = ("median", "90th", "of the time")


def _model_line(name: str, route: str, kernels: Sequence[Row]) -> str:
    measured = [each for each in kernels if each["nodes"]]
    several = [each for each in measured if len({line_of(n) for n in each["nodes"]}) > 1]
    ops = [each for each in measured if len(each["nodes"]) > 1]
    return cells(
        name, route, len(measured), len(kernels) - len(measured), len(several),
        *_figures(several, measured, line_of), *_figures(ops, measured, op_of),
    )  # fmt: skip


def _figures(
    several: Sequence[Row], measured: Sequence[Row], key: Callable[[Row], object]
) -> tuple[str, ...]:
    """Median and 90th percentile where there is something to share; of the time of all kernels."""
    if not several:
        return ("", "", "")
    each = [off_by(kernel, key) for kernel in several]
    wrong_ns = sum(off_by(kernel, key) * kernel["total_ns"] for kernel in measured)
    whole_ns = sum(kernel["total_ns"] for kernel in measured)
    figures = (statistics.median(each), percentile(each, 0.9), wrong_ns / whole_ns)
    return tuple(f"{100 * figure:.0f}%" for figure in figures)


def _worst(kernels: Sequence[Row]) -> list[str]:
    """The kernels that the model is furthest off in, by time, and what it missed."""
    measured = [each for each in kernels if each["nodes"]]
    measured.sort(key=lambda each: -off_by(each, line_of) * each["total_ns"])
    lines = [
        cells("model", "kernel", "us", "off", "has too little", "has too much"),
        cells("---", "---", "---:", "---:", "---", "---"),
    ]
    for each in measured[:WORST]:
        by = sorted(each["nodes"], key=lambda node: node["measured_ns"] - node["modelled_ns"])
        off = f"{100 * off_by(each, line_of):.0f}%"
        us = f"{each['step_ns'] / 1e3:.1f}"
        lines.append(
            cells(
                each["model"], each["kernel"], us, off, _missed(by[-1], each), _missed(by[0], each)
            )
        )
    return lines


def _missed(node: Row, kernel: Row) -> str:
    took, said = (100 * node[key] / kernel["step_ns"] for key in ("measured_ns", "modelled_ns"))
    where = f"{node['op']} {node['file']}:{node['line']} `{node['code']}`"
    return f"{where} {took:.0f}%, model {said:.0f}%"


# Samples against ncu's


def apart(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """How far two samplings of a kernel are apart at the line where they are furthest."""
    return max(abs(first.get(each, 0.0) - second.get(each, 0.0)) for each in {*first, *second})


def ncu_table(rows: Sequence[Row]) -> str:
    """In how many kernels two samplings agree at every line."""
    good = list(filter(_is_measured, rows))
    kernels = [{**each, "model": row["name"]} for row in good for each in row["kernels"]]
    long = [each for each in kernels if each["step_ns"] >= LEAST_NS]
    lines = [
        cells("compared", "kernels", f"within {100 * POINTS:.0f} points", "median", "90th"),
        cells("---", *("---:",) * 4),
        *(_pair_line(first, second, words, long) for first, second, words in PAIRS),
        "",
        f"{len(long)} kernels of {LEAST_NS / 1e3:.0f} us and more of {len(good)} models. "
        f"{_devices(good)}",
        *_ncu_gaps(good),
        *(_failed(row) for row in rows if not _is_measured(row)),
        "",
        cells("model", "kernel", "us", *(f"{words}, apart" for *_, words in PAIRS)),
        cells("---", "---", *("---:",) * (1 + len(PAIRS))),
    ]
    for each in long:
        found = (_apart_in(each, first, second) for first, second, _ in PAIRS)
        percents = ("" if one is None else f"{100 * one:.1f}" for one in found)
        lines.append(
            cells(each["model"], each["kernel"], f"{each['step_ns'] / 1e3:.1f}", *percents)
        )
    return "\n".join(lines) + "\n"


def _pair_line(first: str, second: str, words: str, kernels: Sequence[Row]) -> str:
    found = [one for each in kernels if (one := _apart_in(each, first, second)) is not None]
    if not found:
        return cells(words, 0, "", "", "")
    agree = sum(one <= POINTS for one in found)
    figures = (statistics.median(found), percentile(found, 0.9))
    return cells(words, len(found), agree, *(f"{100 * figure:.1f}" for figure in figures))


def _apart_in(kernel: Row, first: str, second: str) -> float | None:
    """``None`` where one of the two did not sample the kernel."""
    ways = [kernel["ways"].get(way) for way in (first, second)]
    if any(way is None or not way["shares"] for way in ways):
        return None
    return apart(*(way["shares"] for way in ways if way is not None))


def _ncu_gaps(rows: Sequence[Row]) -> list[str]:
    reasons = defaultdict[str, int](int)
    for row in rows:
        for kernel in row["kernels"]:
            for way, found in kernel["ways"].items():
                if not found["shares"]:
                    reasons[f"{way}: {found['reason']}"] += 1
    problems = [
        f"- {row['name']}, {way}: {why}" for row in rows for way, why in row["problems"].items()
    ]
    return [
        *(f"- {count} kernels have no shares by {why}" for why, count in reasons.items()),
        *problems,
    ]


# profile(inside=...)


def profile_table(rows: Sequence[Row]) -> str:
    """Which ways to look inside found and measured kernels."""
    lines = [
        cells("way", "kernels", "measured", "launches", "not as they should be"),
        cells("---", "---:", "---:", "---:", "---"),
    ]
    for row in rows:
        if "failure" in row:
            lines.append(_failed(row))
            continue
        wrong = "; ".join([*row["wrong"], *row["warnings"], *row["reasons"]])
        lines.append(cells(row["name"], row["kernels"], row["measured"], row["launches"], wrong))
    right = sum("failure" not in row and not row["wrong"] for row in rows)
    lines += ["", f"{right} of {len(rows)} are right. {_devices(rows)}"]
    return "\n".join(lines) + "\n"
