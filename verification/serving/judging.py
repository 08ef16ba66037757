"""Whether each launch of the compiled pieces has the line and the layer that it is of.

The truth is the order of the matrix products: a layer has four, and layers run in ``ORDER``, so
the number of a product says its line and its layer. What Inductor generates between two products
may be of the lines between them, and of the layers on either side.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple

from . import toy

__all__ = ["Launch", "Place", "is_product", "judged", "marked_lines", "table", "truths"]

_MARK = re.compile(r"# line: (\w+)$")
_GENERATED = re.compile(r"(?:cpp|triton)_")
_PRODUCT = re.compile(r"^(?!cpp_|triton_).*(?:gemm|mm\b|mm_|linear$)")  # but of no generated name

Row = dict[str, Any]


class Place(NamedTuple):
    """A marked line of the toy, in a module of it.

    Attributes:
        mark: its name; empty is a line without one, which no launch has.
        module: ``None`` is unknown, the empty path the model itself.
    """

    mark: str
    module: str | None


class Launch(NamedTuple):
    """A launch, and the places that it was attributed to, with their shares of its time.

    Attributes:
        places: ``None`` is time without a line.
    """

    kernel: str
    duration_ns: int
    places: tuple[tuple[Place | None, float], ...]
    gap: str = ""


@cache
def marked_lines() -> Mapping[int, str]:
    """Each marked line of the toy, by its number."""
    lines = Path(toy.__file__).read_text().splitlines()
    return {at: found[1] for at, line in enumerate(lines, 1) if (found := _MARK.search(line))}


def truths(order: Sequence[int] = toy.ORDER) -> list[tuple[frozenset[Place], bool]]:
    """Where launches of a forward may be, in order, and whether that is a matrix product."""
    blocks = [f"layers.{at}" for at in order]
    first, start = blocks[0], {Place("embedded", "embedding"), Place("embedded", "")}
    found = [(frozenset(start | {Place("angles", "")} | _norm(f"{first}.before")), False)]
    norms = [*(f"{each}.before" for each in blocks[1:]), "norm"]
    for block, then in zip(blocks, norms, strict=True):
        attention, mlp = f"{block}.attention", f"{block}.mlp"
        # A functional graph copies what attention writes.
        marks = ("qkv", "turned", "room", "attention")
        turned = {Place("angles", ""), *(Place(mark, attention) for mark in marks)}
        gated = {Place("gated", mlp), Place("gate_up", mlp)}
        attended, ended = Place("attended", block), Place("block", block)
        found += [
            (frozenset({Place("qkv", f"{attention}.qkv")}), True),
            (frozenset(turned), False),
            (frozenset({Place("out", f"{attention}.out"), attended}), True),
            (frozenset({attended} | _norm(f"{block}.after")), False),
            (frozenset({Place("gate_up", f"{mlp}.gate_up")}), True),
            (frozenset(gated), False),
            (frozenset({Place("down", f"{mlp}.down"), ended}), True),
            (frozenset({ended, attended} | _norm(then)), False),
        ]
    return found


def _norm(module: str) -> set[Place]:
    return {Place("scale", module), Place("normed", module)}


def judged(steps: Sequence[Sequence[Launch]], order: Sequence[int] = toy.ORDER) -> Row:
    """Compare the launches of each step, in order, with the truth.

    Raises:
        ValueError: a step does not have the products of the model.
    """
    if not steps:
        raise ValueError("no step has a launch of a compiled piece")
    sums: dict[str, float] = defaultdict(float)
    gaps: dict[str, float] = defaultdict(float)
    wrong: list[str] = []
    for launch, allowed in chain.from_iterable(_matched(step, truths(order)) for step in steps):
        for place, share in launch.places:
            part = share * launch.duration_ns
            sums["all"] += part
            if place is None:
                gaps[launch.gap] += part
                continue
            is_line = any(place.mark == each.mark for each in allowed)
            sums["line"] += part * is_line
            sums["layer"] += part * (place in allowed)
            if is_line and place.module is None:
                gaps["module unknown"] += part
            elif place not in allowed:
                wrong.append(f"{launch.kernel}: {place.mark} in {place.module}")
    total = sums["all"] or 1
    return {
        "launches": sum(map(len, steps)),
        "line": sums["line"] / total,
        "layer": sums["layer"] / total,
        "wrong": len(wrong),
        "for_example": wrong[:5],
        "gaps": {name: part / total for name, part in gaps.items()},
    }


def is_product(kernel: str) -> bool:
    """Tell whether a launch is a matrix product, by the name of its call site or kernel."""
    return _PRODUCT.search(kernel) is not None


def _matched(
    launches: Sequence[Launch], slots: Sequence[tuple[frozenset[Place], bool]]
) -> Iterator[tuple[Launch, frozenset[Place]]]:
    """Yield each launch with its truth: launches of one kind in a row are of one slot.

    AOTInductor's C++ calls products of the CPU without an event: there each generated kernel has
    a slot, and no other launch. So has each product where nothing else was kept.
    """
    kinds = {is_product(launch.kernel) for launch in launches}
    if len(kinds) == 1:
        alone = [each for each in launches if True in kinds or _GENERATED.match(each.kernel)]
        yield from zip(alone, (allowed for allowed, kind in slots if kind in kinds), strict=True)
        return
    at = 0
    for now, group in groupby(launches, lambda launch: is_product(launch.kernel)):
        # Products may follow each other where no kernel was needed, or was looked at, between.
        while at < len(slots) and slots[at][1] != now:
            at += 1
        if at == len(slots):
            raise ValueError("a step has more matrix products than the model")
        yield from ((launch, slots[at][0]) for launch in group)
        at += 1
    if any(is_of_product for _, is_of_product in slots[at:]):
        raise ValueError("a step has fewer matrix products than the model")


def table(rows: Sequence[Row]) -> str:
    """All rows in Markdown."""
    lines = [
        "| program | versions | launches | time on the line | on the layer | wrong | gaps |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
        *map(_line, rows),
    ]
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    if "failure" in row:
        return f"| {row['name']} | | failed: {row['failure']} | | | | |".replace("\n", " ")
    gaps = ", ".join(f"{name} {value:.1%}" for name, value in sorted(row["gaps"].items()))
    cells = [
        row["name"],
        row["versions"],
        str(row["launches"]),
        f"{row['line']:.1%}",
        f"{row['layer']:.1%}",
        str(row["wrong"]),
        gaps,
    ]
    return f"| {' | '.join(cells)} |"
