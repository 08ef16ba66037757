"""Owns what the differences of the rows of a table came to: changes, noise, or too few steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from profiler_ext.comparison.records import Change, Interval
from profiler_ext.comparison.uncertainty import (
    FALSE_DISCOVERY_RATE,
    Floats,
    Sample,
    intervals,
    between_runs_std_ns,
)
from profiler_ext.comparison.words import Account, Verdict
from profiler_ext.records import Ints


def changes(
    base: Sample, head: Sample, launches: tuple[Ints, Ints], accounts: Sequence[str]
) -> list[Change]:
    """Return the change of each row; of those that are compared at once few are called so wrongly.

    What the launches of a row tell by being there is no matter of noise: a row of device time that
    is in each step of one side and in none of the other is new, or gone.

    Args:
        base: the base's steps, a column a row.
        head: the head's.
        launches: how many launches each row has in the base, and in the head.
        accounts: the account of each row.
    """
    structural = [_structural(base, head, row, of) for row, of in enumerate(accounts)]
    usual = [between_runs_std_ns(each.means, accounts, on_cpu=each.on_cpu) for each in (base, head)]
    return _changes(base, head, launches, structural, (usual[0], usual[1]))


def change_of_all(
    base: Sample, head: Sample, launches: tuple[int, int], accounts: Sequence[str]
) -> Change:
    """Return the change of all rows together.

    Args:
        base: the base's steps, a column a row.
        head: the head's.
        launches: how many launches the base has, and the head.
        accounts: the account of each row.
    """
    totals = [replace(each, sums=each.sums.sum(axis=1, keepdims=True)) for each in (base, head)]
    usual = [_std_of_all(each, accounts) for each in (base, head)]
    counts = [np.array([count], np.int64) for count in launches]
    (change,) = _changes(totals[0], totals[1], (counts[0], counts[1]), [None], (usual[0], usual[1]))
    return change


def _changes(
    base: Sample,
    head: Sample,
    launches: tuple[Ints, Ints],
    structural: Sequence[Verdict | None],
    usual: tuple[Floats, Floats],
) -> list[Change]:
    sums = [each.sums.sum(axis=0) for each in (base, head)]
    steps = [int(each.ranks.sum()) for each in (base, head)]
    equal = sums[0] * steps[1] == sums[1] * steps[0]
    tested = np.flatnonzero(~equal & np.array([each is None for each in structural], np.bool_))
    result = intervals(base.rows(tested), head.rows(tested), (usual[0][tested], usual[1][tested]))
    interval_of = dict(zip(tested.tolist(), result or (), strict=False))
    return [
        Change(
            base_ns=int(sums[0][row]),
            head_ns=int(sums[1][row]),
            base_steps=steps[0],
            head_steps=steps[1],
            base_launches=int(launches[0][row]),
            head_launches=int(launches[1][row]),
            interval=interval_of.get(row),
            verdict=Verdict.EQUAL
            if equal[row]
            else known or _verdict(interval_of.get(row), sums[0][row], sums[1][row]),
        )
        for row, known in enumerate(structural)
    ]


def _std_of_all(sample: Sample, accounts: Sequence[str]) -> Floats:
    """Return what all rows together usually differ by: those of one account go together."""
    distinct = list(dict.fromkeys(accounts))
    of_row = np.array([distinct.index(account) for account in accounts], np.int64)
    means = np.zeros(len(distinct))
    np.add.at(means, of_row, sample.means)
    usual = between_runs_std_ns(means, distinct, on_cpu=sample.on_cpu)
    return np.array([math.sqrt(float((usual**2).sum()))])


def _structural(base: Sample, head: Sample, row: int, account: str) -> Verdict | None:
    if account != Account.DEVICE:
        return None
    old, new = base.sums[:, row], head.sums[:, row]
    if not old.any() and new.all():
        return Verdict.NEW
    return Verdict.GONE if old.all() and not new.any() else None


def _verdict(interval: Interval | None, base_ns: int, head_ns: int) -> Verdict:
    if interval is None:
        return Verdict.TOO_FEW
    if interval.q_value > FALSE_DISCOVERY_RATE:
        return Verdict.NOISE
    if not base_ns or not head_ns:
        return Verdict.NEW if head_ns else Verdict.GONE
    return Verdict.SLOWER if interval.low_ns > 0 else Verdict.FASTER
