"""The step times that a comparison heads with: in training where both sides know them.

A recording slows the CPU, so a step that waits for the CPU is longer while it is recorded, and one
that the device sets the pace of is not: between two such sides the recorded steps tell a difference
that training does not have. So the steps before the recordings, in which no profiler was on, are
compared where both sides have them; else the recorded steps, where the recordings slow both sides
alike; else neither.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median_low

import numpy as np

from profiler_ext.comparison.judging import change_of_all
from profiler_ext.comparison.records import Change
from profiler_ext.comparison.sides import Side
from profiler_ext.comparison.uncertainty import Sample
from profiler_ext.comparison.words import Account, Verdict
from profiler_ext.findings import training_steps
from profiler_ext.records import Analysis, Scope

_MAX_IDLE_DIFFERENCE = 0.2
"""Where the device idles for a part of the step that differs by more, a recording slows one side
more than the other."""


class Basis(StrEnum):
    """Which steps are compared."""

    TRAINING = "training"
    RECORDED = "recorded"


@dataclass(frozen=True, slots=True)
class StepTime:
    """The change of a step.

    Attributes:
        change: the times; in training the median of each side's steps.
        basis: which steps they are of.
    """

    change: Change
    basis: Basis


def step_time(base: Side, head: Side, recorded: Change) -> StepTime:
    """Return the change of a step.

    Args:
        base: the side that came before.
        head: the other.
        recorded: the change of the recorded step.
    """
    before, now = _in_training(base), _in_training(head)
    if before is not None and now is not None:
        accounts = (Account.DEVICE, Account.IDLE)
        return StepTime(change_of_all(before, now, (0, 0), accounts), Basis.TRAINING)
    if recorded.verdict is not Verdict.EQUAL and not _are_comparable(base, head):
        recorded = replace(recorded, interval=None, verdict=Verdict.NOT_COMPARABLE)
    return StepTime(recorded, Basis.RECORDED)


def _are_comparable(base: Side, head: Side) -> bool:
    """Tell whether recording slows both sides alike, as far as their idle time tells."""
    first, second = (_idle_fraction(side) for side in (base, head))
    return (base.on_cpu and head.on_cpu) or abs(first - second) <= _MAX_IDLE_DIFFERENCE


def _idle_fraction(side: Side) -> float:
    lines = [line for each in side.analyses for line in each.ledger]
    idle_ns = sum(line.duration_ns for line in lines if line.scope == Scope.IDLE)
    return idle_ns / max(sum(line.duration_ns for line in lines), 1)


def _in_training(side: Side) -> Sample | None:
    """Return the steps of each run, of the rank that takes longest; none where a run has none.

    A step has two columns: the device's part, and the rest. The times of a run are moved so that
    their mean is their median, which is the run's step: one unlike the others widens the interval
    and does not move it.
    """
    sums: list[tuple[int, int]] = []
    run_of_step: list[int] = []
    for at, analyses in enumerate(side.analyses_of_runs):
        steps = max(map(training_steps, analyses), key=lambda each: median_low(each) if each else 0)
        if not steps:
            return None
        usual_ns = median_low(steps)
        busy_ns = min(max(map(_busy_ns, analyses)), usual_ns)
        moved = np.array(steps) - round(float(np.mean(steps))) + usual_ns
        moved[0] += usual_ns * len(steps) - int(moved.sum())  # what rounding left
        sums += [(min(busy_ns, each), each - min(busy_ns, each)) for each in moved.tolist()]
        run_of_step += [at] * len(steps)
    ones = np.ones(len(sums), np.int64)
    return Sample(np.array(sums, np.int64), ones, np.array(run_of_step, np.int64), side.on_cpu)


def _busy_ns(analysis: Analysis) -> int:
    """Return how long the devices are busy in a mean step, on average."""
    busy_ns = sum(line.duration_ns for line in analysis.ledger if line.scope != Scope.IDLE)
    devices = len({line.device for line in analysis.ledger})
    return busy_ns // max(len(analysis.steps) * devices, 1)
