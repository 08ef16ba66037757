"""Whether a fusion that is said to be missed wins, and about as much as is said."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["is_close", "marked_lines", "said_ms", "table"]

RULE = "missed_fusion"
FACTOR = 2
_MARK = re.compile(r"# fusion: (\w+)$")

Row = dict[str, Any]


@cache
def marked_lines(name: str) -> frozenset[tuple[str, int]]:
    """The lines of the programs whose kernels are two, with their files."""
    return frozenset(
        (path.name, at)
        for path in Path(__file__).parent.glob("*.py")
        for at, line in enumerate(path.read_text().splitlines(), 1)
        if (mark := _MARK.search(line)) and mark[1] == name
    )


def said_ms(row: Row) -> float:
    """What the finding says of the marked lines, of a step."""
    return sum(
        each["saving_ms"]
        for each in row["findings"]
        if each["rule"] == RULE and [each["file"], each["line"]] in row["lines"]
    )


def wins(row: Row) -> bool:
    """Whether remedying gains anything that differs from noise."""
    return bool(row["gain_interval_ms"][0] > 0)


def is_close(row: Row) -> bool:
    """Whether it gains what is said, within a factor."""
    said = said_ms(row)
    return wins(row) and said > 0 and 1 / FACTOR <= said / row["gain_ms"] <= FACTOR


def table(rows: Sequence[Row]) -> str:
    """All rows in Markdown, and what they come to."""
    lines = [
        "| kind | as it is ms | remedied ms | gain ms | said ms | said / gain |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        *map(_line, rows),
    ]
    said = [row for row in rows if "failure" not in row and said_ms(row)]
    lines += [
        "",
        f"Said to be missed: {len(said)} of {len(rows)}. Of these won: {sum(map(wins, said))}, "
        f"within a factor of {FACTOR}: {sum(map(is_close, said))}.",
    ]
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    if "failure" in row:
        return f"| {row['name']} | failed: {row['failure']} | | | | |".replace("\n", " ")
    low, high = row["gain_interval_ms"]
    said = said_ms(row)
    cells = [
        row["name"],
        f"{row['flawed_ms']:.3f}",
        f"{row['remedied_ms']:.3f}",
        f"{row['gain_ms']:.3f} [{low:.3f}, {high:.3f}]",
        f"{said:.3f}" if said else "",
        f"{said / row['gain_ms']:.2f}" if said and row["gain_ms"] else "",
    ]
    return f"| {' | '.join(cells)} |"
