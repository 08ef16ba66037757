"""Damaged traces: what has a line has the right one, all else is a gap."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from profiler_ext.attribution import attribute
from profiler_ext.records.recording import Recording
from tests.attribution.graphs import extern, graph, node, triton
from tests.attribution.reading import assert_conserves
from tests.attribution.timeline import SETTINGS, Timeline
from tests.handmade import Mark, trace

KERNELS = 4
SITES = 14


def _program(random: np.random.Generator):
    """Return call sites that repeat few names, each on its own line."""
    nodes = tuple(node(f"n{at}", at) for at in range(SITES))
    sites = tuple(
        extern("mm", f"n{at}")
        if random.random() < 0.3
        else triton(f"triton_poi_fused_{random.integers(KERNELS)}", f"n{at}")
        for at in range(SITES)
    )
    return graph(nodes, sites)


def _called(program) -> Timeline:
    timeline = Timeline()
    for _ in range(2):
        with timeline.forward("fkey"):
            for site in program.provenance.call_sites:
                if site.op:
                    timeline.op(site.op, "cublas")
                else:
                    timeline.triton(site.kernel)
    return timeline


def _replayed(program) -> Timeline:
    timeline = Timeline()
    names = [(site.op and "cublas") or site.kernel for site in program.provenance.call_sites]
    for _ in range(2):
        with timeline.forward("fkey"):
            timeline.replay(*names)
    return timeline


def _tagged(timeline: Timeline) -> list[Mark]:
    """Return the marks, with each device event's true line beside it."""
    devices = [at for at, mark in enumerate(timeline.marks) if mark.category == "kernel"]
    lines = {at: n % SITES for n, at in enumerate(devices)}
    return [
        replace(mark, args={**mark.args, "line": lines[at]}) if at in lines else mark
        for at, mark in enumerate(timeline.marks)
    ]


def _wrong_lines(program, marks: list[Mark]) -> list[tuple[str, int, int]]:
    analysis = attribute(Recording(trace(marks), (program,), SETTINGS))
    assert_conserves(analysis)
    assert len(analysis.launches) == sum(mark.category == "kernel" for mark in marks)
    found = []
    for launch, at in zip(analysis.shares.launch, analysis.shares.place, strict=True):
        mark, line = marks[analysis.launches.event[launch]], analysis.places[at].line
        if line is not None and line != mark.args["line"]:
            found.append((mark.name, line, mark.args["line"]))
        assert line is not None or analysis.places[at].gap is not None
    return found


def _drop(marks: list[Mark], category: str, random: np.random.Generator) -> list[Mark]:
    rows = [at for at, mark in enumerate(marks) if mark.category == category]
    gone = set(random.choice(rows, 1).tolist())
    return [mark for at, mark in enumerate(marks) if at not in gone]


def _double(marks: list[Mark], category: str, random: np.random.Generator) -> list[Mark]:
    rows = [at for at, mark in enumerate(marks) if mark.category == category]
    at = int(random.choice(rows))
    return [*marks[: at + 1], marks[at], *marks[at + 1 :]]


def _swap_neighbours(marks: list[Mark], random: np.random.Generator) -> list[Mark]:
    """Exchange the times of two device events of one call that ran one after the other."""
    rows = [at for at, mark in enumerate(marks) if mark.category == "kernel"][:SITES]
    pairs = [(a, b) for a, b in pairwise(rows) if marks[a].name != marks[b].name]
    one, other = pairs[random.integers(len(pairs))]
    marks = list(marks)
    times = marks[one].start_ns, marks[other].start_ns
    marks[one] = replace(marks[one], start_ns=times[1])
    marks[other] = replace(marks[other], start_ns=times[0])
    return marks


def _swap_calls(marks: list[Mark], random: np.random.Generator) -> list[Mark]:
    """Exchange the correlation and the operator of two device events."""
    rows = [at for at, mark in enumerate(marks) if mark.category == "kernel"]
    one, other = (int(at) for at in random.choice(rows, 2, replace=False))
    keys, marks = ("correlation", "External id"), list(marks)
    first, second = marks[one].args, marks[other].args
    marks[one] = replace(marks[one], args={**first, **{key: second[key] for key in keys}})
    marks[other] = replace(marks[other], args={**second, **{key: first[key] for key in keys}})
    return marks


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("category", ["kernel", "cuda_driver", "cpu_op"])
def test_a_lost_event_leads_nothing_to_a_wrong_line(category, seed):
    random = np.random.default_rng(seed)
    program = _program(random)
    marks = _tagged(_called(program))
    for _ in range(3):
        marks = _drop(marks, category, random)
    assert _wrong_lines(program, marks) == []


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("category", ["kernel", "cuda_driver", "cpu_op"])
def test_a_doubled_event_leads_nothing_to_a_wrong_line(category, seed):
    random = np.random.default_rng(seed)
    program = _program(random)
    marks = _double(_tagged(_called(program)), category, random)
    assert _wrong_lines(program, marks) == []


@pytest.mark.parametrize("seed", range(30))
def test_exchanged_calls_lead_nothing_to_a_wrong_line(seed):
    random = np.random.default_rng(seed)
    program = _program(random)
    marks = _swap_calls(_tagged(_called(program)), random)
    assert _wrong_lines(program, marks) == []


@pytest.mark.parametrize("seed", range(60))
def test_neighbours_that_a_replay_ran_in_another_order_lead_nothing_to_a_wrong_line(seed):
    random = np.random.default_rng(seed)
    program = _program(random)
    marks = _swap_neighbours(_tagged(_replayed(program)), random)
    assert _wrong_lines(program, marks) == []


@pytest.mark.parametrize("seed", range(30))
def test_a_replay_that_lost_a_kernel_leads_nothing_to_a_wrong_line(seed):
    random = np.random.default_rng(seed)
    program = _program(random)
    marks = _drop(_tagged(_replayed(program)), "kernel", random)
    assert _wrong_lines(program, marks) == []


@pytest.mark.parametrize("seed", range(30))
def test_undamaged_programs_are_attributed_to_every_line(seed):
    program = _program(np.random.default_rng(seed))
    for timeline in (_called(program), _replayed(program)):
        marks = _tagged(timeline)
        analysis = attribute(Recording(trace(marks), (program,), SETTINGS))
        assert _wrong_lines(program, marks) == []
        assert {analysis.launches.level[row] for row in range(len(analysis.launches))} == {"line"}
