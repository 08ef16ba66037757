"""Cuts JSON answers to a budget, the largest parts first, and records it in ``cuts``.

A list is cut at its end, where the least important items are. Names that identify a row are never
cut: the row goes as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from profiler_ext.errors import UsageError
from profiler_ext.exporters.json_output.documents import Answer, Cut
from profiler_ext.printable import printable, printable_lines

MIN_BUDGET = 4_000
_NESTED_LISTS = ("files", "generated")  # cut the lists within their items, not the items
_MIN_CUT_CHARS = 200  # shorter texts are not worth cutting
_CUT_ENTRY_BYTES = 160  # about the size of one entry of ``cuts``


@dataclass(slots=True)
class _Truncatable:
    """A list or long text of an answer, and the sizes of its items."""

    where: tuple[str, ...]
    holder: dict[str, Any]
    sizes: list[int]

    @property
    def size(self) -> int:
        return sum(self.sizes)


def answer_text(answer: Answer, budget: int | None = None) -> str:
    """Return an answer as one line of ASCII, so that no name controls a terminal."""
    return _encoded(bounded(answer, budget)) + "\n"


def bounded(answer: Answer, budget: int | None = None, *, clean: bool = False) -> dict[str, Any]:
    """Return an answer as JSON types, within a budget.

    Args:
        clean: remove control characters; by default texts are as recorded.

    Raises:
        UsageError: The budget is too small for any answer.
    """
    if budget is not None and budget < MIN_BUDGET:
        raise UsageError(f"a budget of {budget} bytes is too small; ask for {MIN_BUDGET} or more")
    document: dict[str, Any] = msgspec.to_builtins(answer)
    if clean:
        document = _cleaned(document)
    if budget is not None:
        _truncate(document, budget)
    return document


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return printable_lines(value)
    if isinstance(value, dict):
        return {printable(name): _cleaned(each) for name, each in value.items()}
    return [_cleaned(each) for each in value] if isinstance(value, list) else value


def _truncate(document: dict[str, Any], budget: int) -> None:
    parts = list(_truncatables(document, ()))
    cut: set[int] = set()
    excess = len(_encoded(document)) - budget
    while excess > 0 and any(part.sizes for part in parts):
        at = max(range(len(parts)), key=lambda each: parts[each].size)
        excess += 0 if at in cut else _CUT_ENTRY_BYTES
        excess -= _shorten(parts[at], excess)
        cut.add(at)
    for at in sorted(cut):
        _record_cut(document, parts[at])


def _shorten(part: _Truncatable, excess: int) -> int:
    """Drop items at the end, at most half of the size; returns the size dropped."""
    taken, most = 0, max(part.size // 2, 1)
    while part.sizes and taken < min(excess, most):
        taken += part.sizes.pop()
    return taken


def _record_cut(document: dict[str, Any], part: _Truncatable) -> None:
    name = part.where[-1]
    whole, kept = part.holder[name], len(part.sizes)
    part.holder[name] = whole[:kept]
    left = whole[kept:]
    cut = Cut(
        where=".".join(part.where),
        kept=kept,
        total=len(whole),
        unit="characters" if isinstance(whole, str) else "items",
        reason="budget",
        left_out_ns=_left_out_ns(left),
    )
    before = [each for each in document["cuts"] if each["where"] == cut.where]
    document["cuts"] = [each for each in document["cuts"] if each["where"] != cut.where]
    document["cuts"].append(msgspec.to_builtins(_merged_cut(cut, before)))


def _merged_cut(cut: Cut, before: list[dict[str, Any]]) -> Cut:
    """Merge two cuts of one list: to its top rows, and then to the budget."""
    for each in before:
        times = [t for t in (cut.left_out_ns, each["left_out_ns"]) if t is not None]
        left_out_ns = sum(times) if times else None
        cut = msgspec.structs.replace(cut, total=each["total"], left_out_ns=left_out_ns)
    return cut


def _left_out_ns(left: str | list[Any]) -> int | None:
    rows = [each for each in left if isinstance(each, dict)]
    times = [each.get("duration_ns", each.get("wall_ns")) for each in rows]
    known = [time for time in times if time is not None]
    return sum(known) if known else None


def _truncatables(holder: dict[str, Any], where: tuple[str, ...]) -> Iterator[_Truncatable]:
    """Yield lists and long texts, through objects but not through lists."""
    for name, value in holder.items():
        path = (*where, name)
        if path == ("cuts",):
            continue
        if name in _NESTED_LISTS:
            for at, item in enumerate(value):
                yield from _truncatables(item, (*path, str(at)))
        elif isinstance(value, dict):
            yield from _truncatables(value, path)
        elif isinstance(value, list) and value:
            yield _Truncatable(path, holder, [len(_encoded(each)) + 2 for each in value])
        elif isinstance(value, str) and len(value) > _MIN_CUT_CHARS:
            yield _Truncatable(path, holder, [len(_encoded(each)) - 2 for each in value])


def _encoded(value: Any) -> str:
    return json.dumps(value)
