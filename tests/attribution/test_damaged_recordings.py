"""What an H200 recorded, damaged: what has a line has the right one, else a gap."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
import pytest

import profiler_ext
from profiler_ext.attribution import attribute
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Events, Interned
from profiler_ext.records.recording import Recording
from profiler_ext.records.vocabulary import Phase
from tests.cases.neutral import FOLDER, SUFFIX

pytestmark = pytest.mark.sweep

CASES = sorted(path.name.removesuffix(SUFFIX) for path in FOLDER.glob(f"*{SUFFIX}"))
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = ("cuda_runtime", "cuda_driver")
Rows = list[int]


@functools.lru_cache(maxsize=1)
def recorded(name: str) -> tuple[Recording, dict[int, frozenset[tuple]]]:
    recording = profiler_ext.load(FOLDER / f"{name}{SUFFIX}").recording
    return recording, lines_of(attribute(recording))


def lines_of(analysis: Analysis) -> dict[int, frozenset[tuple]]:
    """The lines of each device event, by its row."""
    found: dict[int, set[tuple]] = {int(row): set() for row in analysis.launches.event}
    for launch, at in zip(analysis.shares.launch, analysis.shares.place, strict=True):
        place = analysis.places[at]
        if place.line is not None and place.gap is None:
            row = int(analysis.launches.event[launch])
            found[row].add((place.file, place.line, place.phase))
    return {row: frozenset(lines) for row, lines in found.items()}


def with_rows(events: Events, rows: Rows) -> Events:
    """The events with these rows only, in this order; a row may stand twice."""
    columns = {}
    for column in (f.name for f in fields(Events) if f.name != "threads"):
        values = getattr(events, column)
        is_text = isinstance(values, Interned)
        columns[column] = replace(values, codes=values.codes[rows]) if is_text else values[rows]
    return replace(events, **columns)


def some(events: Events, categories: tuple[str, ...], random: np.random.Generator, n: int) -> Rows:
    rows = np.flatnonzero(events.category.where(*categories))
    return random.choice(rows, min(n, len(rows)), replace=False).tolist()


def lost(categories: tuple[str, ...]):
    def damage(events: Events, random: np.random.Generator) -> tuple[Events, Rows]:
        gone = set(some(events, categories, random, 3))
        rows = [row for row in range(len(events)) if row not in gone]
        return with_rows(events, rows), rows

    return damage


def doubled(categories: tuple[str, ...]):
    def damage(events: Events, random: np.random.Generator) -> tuple[Events, Rows]:
        twice = set(some(events, categories, random, 2))
        rows = [row for row in range(len(events)) for _ in range(1 + (row in twice))]
        return with_rows(events, rows), rows

    return damage


def exchanged(categories: tuple[str, ...], *columns: str, neighbours: bool = False):
    def damage(events: Events, random: np.random.Generator) -> tuple[Events, Rows]:
        one, other = _pair(events, categories, random, neighbours)
        while "start_ns" in columns and events.name[one] == events.name[other]:
            # In a replay two of one name that exchange their times leave the recording as it was.
            one, other = _pair(events, categories, random, neighbours)
        changed = {}
        for column in columns:
            values = getattr(events, column).copy()
            values[[one, other]] = values[[other, one]]
            changed[column] = values
        return replace(events, **changed), list(range(len(events)))

    return damage


def _pair(
    events: Events, categories: tuple[str, ...], random: np.random.Generator, neighbours: bool
) -> tuple[int, int]:
    rows = np.flatnonzero(events.category.where(*categories))
    if not neighbours:
        one, other = random.choice(rows, 2, replace=False).tolist()
        return one, other
    ordered = rows[np.lexsort((events.start_ns[rows], events.thread[rows]))]
    at = int(random.integers(len(ordered) - 1))
    return int(ordered[at]), int(ordered[at + 1])


DAMAGES: dict[str, Callable[[Events, np.random.Generator], tuple[Events, Rows]]] = {
    "kernels lost": lost(DEVICE),
    "launch calls lost": lost(CALLS),
    "ops lost": lost(("cpu_op",)),
    "kernels doubled": doubled(DEVICE),
    "launch calls doubled": doubled(CALLS),
    "ops doubled": doubled(("cpu_op",)),
    "kernels in another order": exchanged(DEVICE, "start_ns", "duration_ns", neighbours=True),
    "kernels far apart in another order": exchanged(DEVICE, "start_ns", "duration_ns"),
    "kernels of each other's call": exchanged(DEVICE, "correlation", "external_id"),
    "kernels of a neighbour's call": exchanged(
        DEVICE, "correlation", "external_id", neighbours=True
    ),
    "launch calls of each other": exchanged(CALLS, "correlation", neighbours=True),
}


def wrong_lines(name: str, kind: str, seed: int) -> list[tuple]:
    recording, true_lines = recorded(name)
    events, rows = DAMAGES[kind](recording.trace.events, np.random.default_rng(seed))
    trace = replace(recording.trace, events=events)
    found = lines_of(attribute(replace(recording, trace=trace)))
    wrong = {row: lines - or_other(true_lines[rows[row]]) for row, lines in found.items()}
    return [(events.name[row], sorted(lines)) for row, lines in wrong.items() if lines]


def or_other(lines: frozenset[tuple]) -> frozenset[tuple]:
    """The same, where nothing says of eager work that it is forward: its backward was lost."""
    return lines | {(file, line, Phase.OTHER) for file, line, _ in lines}


@pytest.mark.parametrize("name", CASES)
def test_a_damaged_recording_leads_nothing_to_a_wrong_line(name):
    seed = zlib.crc32(name.encode())
    found = {kind: wrong_lines(name, kind, seed) for kind in DAMAGES}
    assert found == {kind: [] for kind in DAMAGES}


REPLAYED = [name for name in CASES if "cudagraphs" in name]
MOVED = [kind for kind in DAMAGES if kind.startswith("kernels ") and "doubled" not in kind]
TRIALS = 10


@pytest.mark.parametrize("kind", MOVED)
@pytest.mark.parametrize("name", REPLAYED)
def test_no_replay_that_lost_or_exchanged_kernels_leads_one_to_a_wrong_line(name, kind):
    found = {seed: wrong_lines(name, kind, seed) for seed in range(TRIALS)}
    assert found == {seed: [] for seed in range(TRIALS)}


@pytest.mark.parametrize("seed", range(25))
def test_a_graph_in_parts_that_lost_operators_leads_nothing_to_a_wrong_line(seed):
    assert wrong_lines("partitioned", "ops lost", seed) == []


@pytest.mark.parametrize(
    ("name", "kind", "seed"),
    [
        ("eager_loss", "kernels of a neighbour's call", 0),
        ("fp8", "kernels of a neighbour's call", 1),
        ("split_k", "kernels of each other's call", 0),
        ("tensor_parallel.rank_0", "kernels of a neighbour's call", 1),
    ],
)
def test_what_changed_places_with_its_neighbour_outside_the_graph_has_no_line(name, kind, seed):
    assert wrong_lines(name, kind, seed) == []


@pytest.mark.parametrize(
    ("name", "seed"), [("eager_hooks", 0), ("eager_hooks", 2), ("eager_loader", 0)]
)
def test_what_lost_its_node_amid_a_backward_is_not_taken_for_its_callback(name, seed):
    assert wrong_lines(name, "ops lost", seed) == []
