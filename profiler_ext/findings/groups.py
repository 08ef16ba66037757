"""Groups of launches, or of the CPU's work, that one change of the program would remove.

Each group's saving is that of a replay without it, on top of the groups with a larger one, so that
no time is saved twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from math import prod
from typing import Final

import numpy as np

from profiler_ext.findings.critical_path import Floats, Remedied, Replay
from profiler_ext.findings.facts import Facts, Rows, location_of, median_per_step
from profiler_ext.findings.finding import NOWHERE, Location
from profiler_ext.findings.rule import NO_ROWS
from profiler_ext.kineto.launch_shapes import launch_shapes
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Interned, Ints
from profiler_ext.records.vocabulary import Phase

OUTSIDE_BACKWARD = (Phase.FORWARD, Phase.OTHER)
_IN_BACKWARD = (Phase.BACKWARD, Phase.GRADIENT_ACCUMULATION)
# So long takes ``cudaGraphLaunch`` for each node: 1.0 to 2.3 microseconds were recorded on an H100
_NODE_NS = 2_000
READ: Final = "aten::_local_scalar_dense"
EAGER_KEPT: Final = 0.15  # of the CPU's time for what runs eagerly, once it is compiled
SHORT_NS: Final = 10_000  # launching takes as long
_MULTIPROCESSORS = "numSms"  # a property of Kineto's devices
_MOST_BLOCKS, _MOST_THREADS = 2**62, 1024  # of a launch, of a block
_FREQUENT = 4  # an op of each tensor is at most so much rarer than the one called most


class Kind(Enum):
    """What a group is made of."""

    OPTIMIZER = auto()  # an optimizer that updates parameters one by one
    TENSORS = auto()  # a loop over tensors outside of forward and backward
    CALLS = auto()  # a loop in a forward, also over the modules of a list
    ROWS = auto()  # calls of autograd that run the same nodes, for one row after the other
    OPS = auto()  # ops that launch a kernel for each part of what they are given
    COPIES = auto()  # waits for copies from memory that is not pinned
    EAGER = auto()  # what runs eagerly next to compiled graphs
    CONSTANTS = auto()  # tensors that are computed again from sizes alone
    PICKS = auto()  # ops on the elements of a mask, which the CPU waits to know
    READS = auto()  # reads of single values, for which the CPU waits
    COMPUTING = auto()  # ops that compute on the CPU
    PYTHON = auto()  # Python that launches nothing for long
    LOADING = auto()  # waits for the next batch
    ALLOCATING = auto()  # calls that allocate and free memory
    CHECKING = auto()  # what anomaly detection adds
    BREAKS = auto()  # guards and wrappers of the further graphs that a graph break makes


@dataclass(frozen=True, slots=True)
class LaunchGroup:
    """Launches, or the CPU's work, that one change would remove."""

    kind: Kind
    location: Location  # the line with most of it
    launches: Ints
    count: int  # of parameters, tensors, calls or ops a step
    cpu_kept: Floats | float  # the part of the CPU's time since the launch before that is left
    busy_kept: Floats | float  # the part of the device's time
    waits: Rows | None = None  # those of ``Replay.waits`` that go with them; ``None`` for none
    work_kept: Floats | None = None  # the part of the CPU's time before every launch that is left
    pieces: Ints | None = None  # rows of the idle time during it; ``None``: before its launches
    what: str = ""  # what it runs, where the rule says so
    lines: int = 1
    is_most: bool = False  # no more than this goes
    saving_ns: int = 0

    def idle(self, facts: Facts) -> Ints:
        """Return the pieces of idle time that its launches ended, or during its work."""
        return facts.idle_before(self.launches) if self.pieces is None else self.pieces


@dataclass(frozen=True, slots=True)
class Replayed:
    """The groups with their savings, and the step that is left without all of them."""

    groups: tuple[LaunchGroup, ...]
    idle_ns: int  # of the device in that step
    left: Remedied | None = None  # what that step has; ``None`` where it cannot be replayed


def replayed_in_turn(facts: Facts, groups: Iterable[LaunchGroup]) -> Replayed:
    """Replay the step without one group after the other, that of the largest saving first."""
    replay = facts.replay
    if replay is None:  # then the idle time during the CPU's work is all that is known
        known = (each for each in groups if each.pieces is not None)
        return Replayed(tuple(_with_its_idle(facts, each) for each in known), facts.idle_ns)

    saved, left, now = [], list(groups), replay.unchanged
    now_ns, busy_ns = _step_ns(facts, replay, now)
    # What the CPU computes between launches stays where only these are merged
    works = (1 - each.work_kept for each in left if each.work_kept is not None)
    launching = 1 - np.minimum(sum(works, np.zeros(len(facts.launches))), 1)
    while left:
        after = [now.joined(_remedied(facts, each, launching)) for each in left]
        took_ns = [_step_ns(facts, replay, each) for each in after]
        best = min(range(len(left)), key=lambda at: took_ns[at])
        saved.append(replace(left.pop(best), saving_ns=max(now_ns - took_ns[best][0], 0)))
        now, now_ns, busy_ns = after[best], min(now_ns, took_ns[best][0]), took_ns[best][1]
    return Replayed(tuple(saved), max(now_ns - busy_ns, 0), now)


def saved_alone_ns(facts: Facts, group: LaunchGroup) -> int:
    """Return what a group saves of the step as it is, without the others."""
    if facts.replay is None:
        return group.saving_ns
    unchanged = facts.replay.unchanged
    without = unchanged.joined(_remedied(facts, group, np.ones(len(facts.launches))))
    before, after = (_step_ns(facts, facts.replay, each)[0] for each in (unchanged, without))
    return max(before - after, 0)


def saved_by_graphs_ns(facts: Facts, replayed: Replayed) -> int | None:
    """Return what CUDA graphs of forward and backward save of the step that the groups leave."""
    if facts.replay is None or replayed.left is None:
        return None
    launches, pace = facts.launches, facts.pace
    own = np.flatnonzero(~launches.phase.where(Phase.OPTIMIZER) & ~pace.replayed)
    cpu = np.ones(len(launches))
    cpu[own] = nodes_kept(facts, own)
    with_graphs = replayed.left.joined(Remedied(cpu, np.ones(len(launches))))
    before, after = (
        _step_ns(facts, facts.replay, each)[0] for each in (replayed.left, with_graphs)
    )
    return max(before - after, 0)


def nodes_kept(facts: Facts, launches: Ints) -> Floats:
    """Return the part of the CPU's time before each launch that is left in CUDA graphs of them.

    The first launch of a graph keeps the way to it, the others what a node of a graph costs. The
    forward and the backward have graphs of their own.
    """
    table, enqueued_ns = facts.launches, facts.pace.enqueued_ns
    order = np.argsort(enqueued_ns, kind="stable")
    is_own = np.isin(order, launches)
    is_backward = table.phase.where(*_IN_BACKWARD)[order]
    is_in = is_own[1:] & is_own[:-1] & (is_backward[1:] == is_backward[:-1])
    kept, since_ns = np.ones(len(table)), np.diff(enqueued_ns[order])[is_in]
    kept[order[1:][is_in]] = np.minimum(_NODE_NS / np.maximum(since_ns, 1), 1)
    return kept[launches]


def _step_ns(facts: Facts, replay: Replay, remedied: Remedied) -> tuple[int, int]:
    """Return the time of a step with a remedy, and of the device's work in it."""
    busy_ns = int(facts.busy_ns * _busy_part(facts, remedied))
    return max(replay.step_ns(facts.training.slowdown, remedied), busy_ns), busy_ns


def _with_its_idle(facts: Facts, group: LaunchGroup) -> LaunchGroup:
    pieces = NO_ROWS if group.pieces is None else group.pieces
    return replace(group, saving_ns=median_per_step(facts, pieces))


def _busy_part(facts: Facts, remedied: Remedied) -> float:
    duration_ns = np.where(facts.launches.in_steps, facts.launches.duration_ns, 0)
    return float((duration_ns * remedied.busy).sum() / max(int(duration_ns.sum()), 1))


def _remedied(facts: Facts, group: LaunchGroup, launching: Floats) -> Remedied:
    """Return what is left without a group; ``launching`` is the part of time that is no work."""
    cpu, busy, count = (np.ones(len(facts.launches)) for _ in range(3))
    cpu[group.launches] -= (1 - group.cpu_kept) * launching[group.launches]
    busy[group.launches], count[group.launches] = group.busy_kept, group.cpu_kept
    gone = 0.0 if group.work_kept is None else 1 - group.work_kept
    waits = None if group.waits is None else ~group.waits
    return Remedied(cpu, busy, waits, gone, count)


def placed(facts: Facts, launches: Ints, predicate: Callable[[Place], bool]) -> Rows:
    """Flag launches by their place."""
    flags = np.array([*map(predicate, facts.analysis.places), False], np.bool_)
    flagged: Rows = flags[facts.main_place[launches]]
    return flagged


def busy_merged(facts: Facts, launches: Ints, *, in_turn: bool = False) -> Floats:
    """Return the part of the device's time of launches that is left once they are one."""
    # in_turn: one may need another's result, so that they cannot run beside each other
    # What is long has enough to do for the multiprocessors that it runs on, merged or not; at least
    # one round remains
    is_short = facts.launches.duration_ns[launches] < SHORT_NS
    _, kernel, counts = np.unique(
        facts.launches.name.codes[launches], return_inverse=True, return_counts=True
    )
    rounds = np.maximum(counts[kernel] / max(len(facts.analysis.steps), 1), 1)
    filled = np.clip(_part_filled(facts, launches), 1 / rounds, 1)
    return np.where(is_short, 0.5, 1.0 if in_turn else filled)


def _part_filled(facts: Facts, launches: Ints) -> Floats:
    """Return for what part of the device each launch has blocks; 1 where that is unknown."""
    count, blocks = multiprocessors(facts), blocks_of(facts, launches)
    return np.where((count > 0) & (blocks > 0), np.minimum(blocks / max(count, 1), 1), 1.0)


def multiprocessors(facts: Facts) -> int:
    """Return how many multiprocessors the smallest device has; 0 where the trace has none."""
    devices = facts.analysis.recording.trace.devices
    texts = [dict(each.properties).get(_MULTIPROCESSORS, "0") for each in devices]
    return min((int(each) for each in texts if each.isdecimal() and int(each)), default=0)


def blocks_of(facts: Facts, launches: Ints) -> Ints:
    """Return the number of blocks of each launch; 0 where it is unknown."""
    trace = facts.analysis.recording.trace
    return _counts(launch_shapes(trace, facts.launches.event[launches]).grid, _MOST_BLOCKS)


def threads_of(facts: Facts, launches: Ints) -> Ints:
    """Return the threads in a block of each launch; 0 where they are unknown."""
    trace = facts.analysis.recording.trace
    return _counts(launch_shapes(trace, facts.launches.event[launches]).block, _MOST_THREADS)


def _counts(sizes: Interned, most: int) -> Ints:
    products = [min(prod(map(int, text.split("x"))), most) if text else 0 for text in sizes.strings]
    counts: Ints = np.array(products, np.int64)[sizes.codes]
    return counts


def busiest(facts: Facts, launches: Ints) -> Location:
    """Return the line with most of the launches."""
    places, counts = np.unique(facts.main_place[launches], return_counts=True)
    return location_of(facts.analysis.places[int(places[counts.argmax()])])


def longest_line(facts: Facts, lines: Mapping[Location, Ints]) -> Location:
    """Return the line with most of the idle time, of pieces by line."""
    duration_ns = facts.analysis.idle.duration_ns
    return max(lines, key=lambda each: int(duration_ns[lines[each]].sum()), default=NOWHERE)


def ops_of(facts: Facts, launches: Ints) -> Interned:
    """Return the name of the op that launched each; ``""`` where it is unknown."""
    name, rows = facts.analysis.recording.trace.events.name, facts.launches.op_event[launches]
    strings = (*name.strings, "")
    codes = np.where(np.ma.getmaskarray(rows), len(name.strings), name.codes[rows.filled(0)])
    return Interned(codes.astype(np.int32), strings)


def usual_count(facts: Facts, launches: Ints) -> int:
    """Return for how many tensors a step runs these: its least frequent op, of frequent ones."""
    counts = np.bincount(ops_of(facts, launches).codes)
    return least_frequent(counts) // len(facts.analysis.steps)


def least_frequent(counts: Ints) -> int:
    """Return the least of these counts, without rare ones."""
    often = counts[(counts > 0) & (counts * _FREQUENT >= counts.max(initial=0))]
    return int(often.min()) if len(often) else 0
