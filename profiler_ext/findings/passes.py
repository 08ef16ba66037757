"""Owns the passes of a step: how often it runs a forward and a backward, and what is of which.

A step that accumulates gradients has several. A pass begins with a forward; what runs after its
backward, the optimizer's step too, is of it until the next forward begins. Work that the phases
call forward and that takes next to no time beside the forward (gradients that are scaled after the
backward) begins no pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiler_ext.findings.facts import Facts, Rows
from profiler_ext.records import Ints, Phase

_MIN_FORWARD = 0.05
_FORWARD, _BACKWARD = 1, 2


@dataclass(frozen=True, slots=True)
class Passes:
    """One row for each launch.

    Attributes:
        number: of the pass within its step, from 0.
        count: how many passes its step has.
        in_forward: it was enqueued while the forward of its pass was; a gradient that is reduced
            when the backward is over was not.
    """

    number: Ints
    count: Ints
    in_forward: Rows


def passes_of(facts: Facts) -> Passes:
    """Tell of each launch which pass of its step it is of.

    Args:
        facts: what is known of the session.
    """
    count = len(facts.launches)
    result = Passes(np.zeros(count, np.int64), np.ones(count, np.int64), np.zeros(count, np.bool_))
    steps = facts.launches.step.filled(-1)
    order = np.lexsort((facts.pace.enqueued_ns, steps))
    order = order[steps[order] >= 0]
    for rows in np.split(order, np.flatnonzero(np.diff(steps[order])) + 1) if len(order) else ():
        kind = _kinds(facts, rows)
        begins = (kind == _FORWARD) & (np.append(0, kind[:-1]) != _FORWARD)
        result.number[rows] = np.maximum(np.cumsum(begins) - 1, 0)
        result.count[rows] = max(int(begins.sum()), 1)
        result.in_forward[rows] = kind == _FORWARD
    return result


def _kinds(facts: Facts, rows: Ints) -> Ints:
    """Tell of launches in their order whether they are in a forward, or in what follows it."""
    phase, duration_ns = facts.launches.phase, facts.launches.duration_ns[rows].copy()
    kind = np.where(phase.where(Phase.FORWARD)[rows], _FORWARD, 0)
    kind[phase.where(Phase.BACKWARD)[rows]] = _BACKWARD
    is_collective = np.isin(rows, facts.analysis.communication.launch)
    kind[is_collective], duration_ns[is_collective] = 0, 0
    kind = _forward_fill(kind)
    run = np.cumsum(np.append(0, kind[1:] != kind[:-1]))
    spent_ns = np.bincount(run, weights=duration_ns * (kind == _FORWARD))
    is_short = (kind == _FORWARD) & (spent_ns[run] < _MIN_FORWARD * spent_ns.sum())
    return np.where(is_short, _BACKWARD, kind)


def _forward_fill(kind: Ints) -> Ints:
    """Let what is neither be as the last one before it that is; before all, as the first one."""
    known = np.flatnonzero(kind)
    if not len(known):
        return kind
    at = np.searchsorted(known, np.arange(len(kind)), side="right") - 1
    filled: Ints = kind[known[np.maximum(at, 0)]]
    return filled
