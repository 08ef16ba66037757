"""The loops of a program by the lines that ran: whose rounds need what the round before made."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Final

import numpy as np

from profiler_ext.findings.code_of_rounds import (
    is_open,
    statement_text,
    statements_in_turn,
    statements_of_masks,
    statements_of_state,
)
from profiler_ext.findings.facts import Facts, Rows
from profiler_ext.findings.groups import Kind, LaunchGroup, busiest, nodes_kept
from profiler_ext.findings.waiting import waits_after, waits_at
from profiler_ext.records.events import Ints
from profiler_ext.records.lineage import Frame
from profiler_ext.records.recording import Position, PythonLines

# Of most modules no line can keep a state, and none is parsed
_MAY_KEEP = re.compile(r"\bself\.\w+[^=]*=(?!=)|\bself\.[\w.]+_\(")
_LOOPS = re.compile(r"(?:async\s+)?(?:for|while)\b")
IN_TURN: Final = "rounds that need each other"
_MIN_ROUNDS = 2
_MERGED = 0.5  # where less of the CPU's time goes, a loop is none to merge
_NOWHERE = -1  # where no code of the program runs; between the positions of two threads, too
_Key = tuple[tuple[Frame, ...], str | None]


@dataclass(frozen=True, slots=True)
class InTurn:
    """What the text of the loops around each place says; the last one is that of no place."""

    rounds: Ints  # so many rounds run one after the other
    is_free: Rows  # a loop is around it, and no round of any needs another
    is_mask: Rows  # one pass over the same tensors does what it does in all rounds


def in_turn(facts: Facts) -> InTurn:
    """Return which places of a session are in loops whose rounds need each other."""
    return facts.analysis.derived.once("rounds in turn", lambda: _in_turn(facts))


def _in_turn(facts: Facts) -> InTurn:
    places, python = facts.analysis.places, facts.analysis.recording.python
    rounds, flags = np.ones(len(places) + 1, np.int64), np.zeros((2, len(places) + 1), np.bool_)
    if python is None or not facts.analysis.steps:
        return InTurn(rounds, *flags)
    frames = _frames(python)
    loops = list(_loops(python, frames, len(facts.analysis.steps)))
    known: dict[_Key, list[_Around]] = {}
    for each in _positions_in(python, loops, set(_of_state(python, frames)) if loops else set()):
        known.setdefault(each.key, []).append(each)
    for at, place in enumerate(places):
        if around := known.get((place.stack, place.module)):
            rounds[at] = round(max(each.rounds for each in around))
            flags[0, at] = rounds[at] == 1 and all(each.is_known for each in around)
            flags[1, at] = flags[0, at] and all(each.is_mask for each in around)
    return InTurn(rounds, *flags)


def apart(facts: Facts, loop: LaunchGroup) -> Iterator[LaunchGroup]:
    """Yield what of a loop can be merged, and what only a CUDA graph can launch at once.

    The launches of a round that needs the one before cannot be merged with those of others. A graph
    holds no wait.
    """
    rounds = in_turn(facts).rounds[facts.main_place[loop.launches]]
    rounds[facts.main_place[loop.launches] < 0] = rounds.max(initial=1)
    kept = np.minimum(loop.cpu_kept * np.maximum(rounds, 1), 1.0)
    kept = np.where(rounds > 1, np.maximum(kept, rounds / loop.count), kept)
    is_free = (rounds <= 1) | (kept <= _MERGED)
    if is_free.all() or loop.kind not in (Kind.CALLS, Kind.TENSORS):
        yield loop
        return
    own, others = loop.launches[is_free], loop.launches[~is_free]
    if facts.launches_per_step(own) >= loop.count:
        yield replace(
            loop,
            location=busiest(facts, own),
            launches=own,
            cpu_kept=kept[is_free],
            busy_kept=np.broadcast_to(loop.busy_kept, kept.shape)[is_free],
            waits=waits_after(facts, own, loop.count),
        )
    if not waits_at(facts, others).any():
        # Once the rest is merged, they follow each other
        nodes = nodes_kept(facts, loop.launches)[~is_free]
        yield replace(
            loop, launches=others, cpu_kept=nodes, busy_kept=1.0, waits=None, what=IN_TURN
        )


@dataclass(frozen=True, slots=True)
class _Loop:
    rounds: int  # of one call of its function
    visits: dict[int, int]  # how often each position of its rounds was come to
    in_turn: frozenset[int] | None  # those that need the round before; ``None`` where unknown
    of_masks: frozenset[int]  # those at which a round compares the same tensors as all others


_Frames = dict[tuple[int | None, int], list[int]]


def _frames(python: PythonLines) -> _Frames:
    """Return the positions of each function, by what called it and its number."""
    frames: _Frames = {}
    for at, position in enumerate(python.positions):
        if position.function is not None:
            frames.setdefault((position.parent, position.function), []).append(at)
    return frames


def _loops(python: PythonLines, frames: _Frames, steps: int) -> Iterator[_Loop]:
    """Yield the loops that run several rounds within a step."""
    headers = {at for at, each in enumerate(python.positions) if _LOOPS.match(each.code or "")}
    looping = [own for own in frames.values() if headers.intersection(own)]
    for own, visited in zip(looping, _visited(python, looping), strict=True):
        for header in headers.intersection(own):
            rounds = _rounds_of(visited, header, _calls(python, own))
            if sum(map(len, rounds)) >= _MIN_ROUNDS * steps:
                yield _loop(python.positions, header, rounds)


def _of_state(python: PythonLines, frames: _Frames) -> Iterator[int]:
    """Yield the positions of modules' methods that need what the call before kept in ``self``."""
    for methods in _methods(python, frames).values():
        codes = (python.positions[at].code or "" for own in methods.values() for at in own)
        if not any(_MAY_KEEP.search(each) for each in codes):
            continue
        calls = _visited(python, list(methods.values()))
        statements = {
            name: list(_statements(python.positions, _usual(each, _calls(python, own))))
            for (name, own), each in zip(methods.items(), calls, strict=True)
        }
        text = {
            name: [_text(python.positions, each) for each in body]
            for name, body in statements.items()
        }
        for name, found in statements_of_state(text).items():
            yield from (at for number in found for at in statements[name][number])


def _methods(python: PythonLines, frames: _Frames) -> dict[int, dict[str, list[int]]]:
    """Return the methods of each module that ran, by name: ``forward``, and what calls ``self``."""
    modules: dict[int, dict[str, list[int]]] = {}
    owner: dict[int, int] = {}  # the module that ``self`` is, by a position of its methods
    for (parent, function), own in frames.items():  # a caller's positions come first
        if parent is None:
            continue
        name = python.functions[function].name
        is_called = python.positions[parent].module is not None
        is_own = f"self.{name.rpartition('.')[2]}(" in (python.positions[parent].code or "")
        module = parent if is_called else owner.get(parent) if is_own else None
        if module is not None:
            owner.update(dict.fromkeys(own, module))
            modules.setdefault(module, {}).setdefault(name.rpartition(".")[2], []).extend(own)
    return modules


def _usual(visited: Ints, calls: Ints) -> tuple[int, ...]:
    """Return the positions of the way that most calls of a function take."""
    parts = np.split(visited, np.flatnonzero(np.isin(visited, calls)))
    ways = Counter(tuple(part[1:].tolist()) for part in parts if len(part) > 1)
    return ways.most_common(1)[0][0] if ways else ()


def _visited(python: PythonLines, frames: Sequence[Sequence[int]]) -> list[Ints]:
    """Return the positions of each frame in the order in which threads came to them."""
    number = np.full(len(python.positions) + 1, _NOWHERE)
    for at, own in enumerate(frames):
        number[own] = at
    sequence = _sequence(python)
    rows = np.flatnonzero(number[sequence] >= 0)
    rows = rows[np.argsort(number[sequence[rows]], kind="stable")]
    bounds = np.searchsorted(number[sequence[rows]], np.arange(1, len(frames)))
    parts = np.split(sequence[rows], bounds) if frames else []
    return [each[np.append(True, each[1:] != each[:-1])[: len(each)]] for each in parts]


def _calls(python: PythonLines, frame: Sequence[int]) -> Ints:
    """Return the positions with which a call of a function begins."""
    return np.array([at for at in frame if not python.positions[at].line], np.int64)


def _sequence(python: PythonLines) -> Ints:
    """Return the positions of all threads, of one after the other."""
    parts = [np.append(each.indices, _NOWHERE) for each in python.threads]
    return np.concatenate([np.empty(0, np.int64), *parts])


def _rounds_of(visited: Ints, header: int, calls: Ints) -> list[list[tuple[int, ...]]]:
    """Return the positions of each round of a loop, for each call of its function with several."""
    result: list[list[tuple[int, ...]]] = []
    bounds = np.flatnonzero(np.isin(visited, calls))
    for part in np.split(visited, bounds):
        at = np.flatnonzero(part == header)
        if len(at) > _MIN_ROUNDS:
            rounds = zip(at[:-1].tolist(), at[1:].tolist(), strict=True)
            result.append([tuple(part[begin + 1 : end].tolist()) for begin, end in rounds])
    return result


def _loop(positions: Sequence[Position], header: int, rounds: list[list[tuple[int, ...]]]) -> _Loop:
    every = Counter(each for of_call in rounds for each in of_call)
    visits: Counter[int] = Counter()
    for each, count in every.items():
        visits.update(dict.fromkeys(each, count))
    usual = every.most_common(1)[0][0]
    statements = list(_statements(positions, usual))
    text = positions[header].code or "", [_text(positions, each) for each in statements]

    def of(found: set[int]) -> frozenset[int]:
        return frozenset(at for number in found for at in statements[number])

    bound = statements_in_turn(*text)
    return _Loop(
        median_low(map(len, rounds)),
        dict(visits),
        None if bound is None else of(bound),
        of(statements_of_masks(*text)),
    )


def _statements(positions: Sequence[Position], visited: tuple[int, ...]) -> Iterator[list[int]]:
    """Yield the positions of each statement: one that takes several lines comes to its first again.

    Then all its arguments are there.
    """
    last = {each: at for at, each in enumerate(visited)}
    through = -1
    for at, each in enumerate(visited):
        if at <= through or visited.index(each) < at:
            continue
        own = [each]
        if is_open(positions[each].code or ""):
            through = last[each]
            own = sorted({*visited[at : through + 1]}, key=lambda one: positions[one].line)
        yield own


def _text(positions: Sequence[Position], statement: Sequence[int]) -> str:
    lines = [positions[each].code or "" for each in statement]
    return statement_text(lines) if len(lines) > 1 else lines[0]


@dataclass(frozen=True, slots=True)
class _Around:
    """What the loops around a position say of it."""

    key: _Key = ((), None)
    rounds: float = 1.0
    apart: float = 1.0  # rounds of others, by the text of the loops alone
    is_in_loop: bool = False
    is_known: bool = True  # the text of all rounds
    is_mask: bool = False


def _positions_in(
    python: PythonLines, loops: Sequence[_Loop], of_state: set[int]
) -> Iterator[_Around]:
    """Yield what the loops around each position say, for those in loops."""
    sequence, every = _sequence(python), [_Around()]
    entries: dict[Position, int] = {}
    own: dict[int | None, list[_Loop]] = {}
    for loop in loops:
        for at in loop.visits:
            own.setdefault(at, []).append(loop)
    for at, position in enumerate(python.positions):
        parent = position.parent
        found = every[0 if parent is None else parent + 1]
        found = replace(found, key=_key(python, position, found.key), is_mask=False)
        for loop in own.get(parent, ()):
            call = replace(position, line=0, code=None)
            if call not in entries:
                entries[call] = _entries(python, sequence, call)
            found = _called(found, loop, parent, entries[call])
        for loop in own.get(at, ()):
            found = _within(found, loop, at)
        if at in of_state and found.apart > 1:
            found = replace(found, rounds=found.rounds * found.apart, apart=1.0)
        every.append(found)
        if found.is_in_loop and (position.line or position.module is not None):
            yield found


def _called(found: _Around, loop: _Loop, line: int | None, entries: int) -> _Around:
    """What a line calls may be another module in each round: then it runs once."""
    part = max(min(entries / loop.visits[line or 0], 1.0), 1 / loop.rounds)
    if line in (loop.in_turn or ()):
        return replace(found, rounds=found.rounds * part)
    return replace(found, apart=found.apart * part)


def _within(found: _Around, loop: _Loop, line: int) -> _Around:
    is_in_turn = line in (loop.in_turn or ())
    return replace(
        found,
        rounds=found.rounds * (loop.rounds if is_in_turn else 1),
        apart=found.apart * (1 if is_in_turn else loop.rounds),
        is_in_loop=True,
        is_known=found.is_known and loop.in_turn is not None,
        is_mask=line in loop.of_masks,
    )


def _key(python: PythonLines, position: Position, outer: _Key) -> _Key:
    """Return the stack and the module of a position within another."""
    stack, module = outer
    if position.module is not None:
        own = python.modules[position.module]
        return stack, module if own is None else own.path
    if position.function is None or not position.line:
        return outer
    function = python.functions[position.function]
    return (*stack, Frame(function.file, position.line, function.name, position.code)), module


def _entries(python: PythonLines, sequence: Ints, call: Position) -> int:
    """Return how often a thread came into a call, whatever the line within it."""
    inside = np.zeros(len(python.positions) + 1, np.bool_)
    for at, each in enumerate(python.positions):
        is_own = replace(each, line=0, code=None) == call
        inside[at] = is_own or (each.parent is not None and inside[each.parent])
    flags = inside[sequence]
    return int((flags & ~np.append(False, flags[:-1])).sum())
