"""The lines that call the modules of a list, and how many of them at a time.

The stacks of launches show them: a function of the module that has the list comes to one line, and
below it are launches of modules ``layers.0``, ``layers.1`` and so on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low

from profiler_ext.records.analysis import Place
from profiler_ext.records.vocabulary import Phase

_JOINS = frozenset({"aten::cat", "aten::concat", "aten::hstack", "aten::stack", "aten::vstack"})

Item = tuple[str, str]  # the path of a list of modules, and the number of one of them


@dataclass(frozen=True, slots=True)
class Caller:
    """A call of a function, by its place on the stacks."""

    depth: int
    file: str
    function: str


@dataclass(frozen=True, slots=True)
class CallLine:
    """A line of a function that calls modules."""

    caller: Caller
    line: int
    code: str | None


def rounds_of(
    call: CallLine, items: Mapping[int, Item], places: Sequence[Place], forward: Iterable[int]
) -> int:
    """Return how many modules of a list the line calls each time that its function comes to it."""
    order: list[tuple[Item, set[int]]] = []
    between: set[int] = set()
    for at in forward:
        if at in items:
            if not order or order[-1][0] != items[at]:
                order.append((items[at], between))
            between = set()
        else:
            between |= _lines_in(call, places[at])
    # The other lines of a loop's body run between any two of its modules
    counts = Counter(line for _, lines in order for line in lines)
    body = {line for line, count in counts.items() if 3 * count > 2 * len(order)}
    runs: list[set[Item]] = [set()]
    for item, lines in order:
        is_other_list = any(container != item[0] for container, _ in runs[-1])
        if runs[-1] and (is_other_list or item in runs[-1] or lines - body):
            runs.append(set())
        runs[-1].add(item)
    return median_low(map(len, runs))


def _lines_in(call: CallLine, place: Place) -> set[int]:
    """Return the line of the calling function that a place is at, if it is another one."""
    if call.caller.depth >= len(place.stack):
        return set()
    frame = place.stack[call.caller.depth]
    is_own = (frame.file, frame.function) == (call.caller.file, call.caller.function)
    return {frame.line} - {call.line} if is_own else set()


def callers_of(places: Iterable[Place]) -> dict[str, dict[Caller, bool]]:
    """Return the functions of each module that launch something, and whether they join tensors."""
    callers: dict[str, dict[Caller, bool]] = {}
    for place in places:
        if place.module is not None and place.stack and place.phase is Phase.FORWARD:
            frame = place.stack[-1]
            caller = Caller(len(place.stack) - 1, frame.file, frame.function)
            of_module = callers.setdefault(place.module, {})
            of_module[caller] = of_module.get(caller, False) or place.aten_op in _JOINS
    return callers


def calls_of_lists(
    place: Place, callers: dict[str, dict[Caller, bool]]
) -> Iterator[tuple[CallLine, list[str]]]:
    """Yield the lines that call a module of a list, or of a dict, around a place, and its path."""
    parts = (place.module or "").split(".")
    for end in range(2, len(parts) + 1):
        if ".".join(parts[: end - 1]) in callers:  # that one runs itself, and is no list
            continue
        for caller in callers.get(".".join(parts[: end - 2]), ()):
            frame = place.stack[caller.depth] if caller.depth < len(place.stack) else None
            if frame and (frame.file, frame.function) == (caller.file, caller.function):
                yield CallLine(caller, frame.line, frame.code), parts[:end]
