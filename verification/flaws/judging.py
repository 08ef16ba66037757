"""Whether the findings name a flaw, and whether what they promise is what its remedy gains."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .catalogue import FLAWS

__all__ = ["ACCEPTED", "accepted_rules", "judged", "table", "tuned_table"]

ACCEPTED = Path(__file__).with_name("accepted.json")
FIRST = 5
"""A cause counts as named among so many recommendations."""
CLAIM = 0.03
"""Larger parts of a step are claims."""
FACTOR = 1.5
LEAST_GAIN = 0.01

Row = dict[str, Any]


def judged(row: Row, accepted: Mapping[str, Sequence[str]]) -> Row:
    """A row with its verdicts; ``named`` is none where no rules are accepted as yet."""
    if "failure" in row:
        return row
    rules = accepted.get(row["name"])
    right = [each for each in row["findings"][:FIRST] if rules and _is_right(row, each, rules)]
    named = bool(right) if rules is not None else None
    reported = sum(each["saving_ms"] for each in right if each["saving_per"] == "step")
    costs = _costs(row)
    return row | {
        "costs": costs,
        "named": named,
        "said_ms": reported or None,
        "factor": reported / row["gain_ms"] if costs and reported else None,
        "claims": _claims(row["findings"], row["flawed_ms"], right),
    }


def _is_right(row: Row, finding: Row, rules: Sequence[str]) -> bool:
    place = [finding["file"], finding["line"]]
    return finding["rule"] in rules and (FLAWS[row["name"]].anywhere or place in row["lines"])


def _costs(row: Row) -> bool:
    """Whether remedying the flaw gains anything that differs from noise, on this device."""
    return row["gain_interval_ms"][0] > 0 and row["gain_ms"] > LEAST_GAIN * row["flawed_ms"]


def _claims(findings: Sequence[Row], step_ms: float, right: Sequence[Row]) -> list[Row]:
    """What else is said to save more than a little of a step."""
    return [
        each
        for each in findings
        if each["saving_per"] == "step"
        and each["saving_ms"] > CLAIM * step_ms
        and each not in right
    ]


def table(rows: Sequence[Row]) -> str:
    """All rows in Markdown, and what they come to."""
    lines = [
        "| flaw | flawed ms | remedied ms | gain ms | named | said ms | factor | also claimed |",
        "| --- | ---: | ---: | ---: | --- | ---: | ---: | --- |",
        *(_line(row) for row in rows),
    ]
    costly = [row for row in rows if row.get("costs") and row["named"] is not None]
    named = [row for row in costly if row["named"]]
    close = [row for row in costly if row["factor"] and 1 / FACTOR <= row["factor"] <= FACTOR]
    lines += [
        "",
        f"Flaws that cost time: {len(costly)} of {len(rows)}. Named with their line: {len(named)}. "
        f"Within a factor of {FACTOR}: {len(close)}. Failed: {sum('failure' in r for r in rows)}.",
    ]
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    if "failure" in row:
        return f"| {row['name']} | | | | failed: {_escaped(row['failure'])} | | | |"
    low, high = row["gain_interval_ms"]
    named = {True: "yes", False: "no", None: "not judged"}[row["named"]]
    cells = [
        row["name"],
        f"{row['flawed_ms']:.2f}",
        f"{row['remedied_ms']:.2f}",
        f"{row['gain_ms']:.2f} [{low:.2f}, {high:.2f}]",
        named if row["costs"] else f"no cost ({named})",
        _number(row["said_ms"]),
        _number(row["factor"]),
        _places(row["claims"]),
    ]
    return f"| {' | '.join(cells)} |"


def tuned_table(rows: Sequence[Row]) -> str:
    """What is said of tuned steps, in Markdown, and what the remedy gains where it was tried."""
    lines = [
        "| step | ms | claims above 3% | remedied ms | gain ms |",
        "| --- | ---: | --- | ---: | ---: |",
    ]
    for row in rows:
        if "failure" in row:
            lines.append(f"| {row['name']} | | failed: {_escaped(row['failure'])} | | |")
            continue
        claims = _places(_claims(row["findings"], row["step_ms"], []))
        tried = _gained(row) if "gain_ms" in row else " | "
        lines.append(f"| {row['name']} | {row['step_ms']:.2f} | {claims} | {tried} |")
    return "\n".join(lines) + "\n"


def _gained(row: Row) -> str:
    low, high = row["gain_interval_ms"]
    return f"{row['remedied_ms']:.2f} | {row['gain_ms']:.2f} [{low:.2f}, {high:.2f}]"


def _places(findings: Sequence[Row]) -> str:
    return "; ".join(
        f"{each['rule']} {each['saving_ms']:.2f}"
        + (f" {each['file']}:{each['line']}" if each["line"] else "")
        for each in findings
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _escaped(text: str) -> str:
    return text.replace("\n", " ").replace("|", "\\|")


def accepted_rules() -> dict[str, list[str]]:
    """The rules that would be right, by flaw; a flaw that no one mapped yet is not judged."""
    rules: dict[str, list[str]] = json.loads(ACCEPTED.read_text())
    return rules
