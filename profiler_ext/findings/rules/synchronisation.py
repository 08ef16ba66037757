"""Owns the rule of lines at which the CPU waits for the device, so that it then has no lead."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median_low

import numpy as np

from profiler_ext.findings.facts import Facts, Lacking
from profiler_ext.findings.finding import NOWHERE, Figure, FigureUnit, Sureness, Where
from profiler_ext.findings.idleness import by_line, of_usual_step, pieces_of, spans_in_usual_step
from profiler_ext.findings.pace import RECORDING_SLOWS
from profiler_ext.findings.rule import Candidate, Rule
from profiler_ext.findings.steps import sums_of_steps
from profiler_ext.records import IdleCause, Ints


def _judge(facts: Facts) -> Iterable[Candidate] | Lacking:
    if not facts.on_device:
        return Lacking("the launches ran on the CPU, which waits for no device")
    rows = pieces_of(facts, IdleCause.SYNCHRONISATION, IdleCause.AFTER_SYNCHRONISATION)
    lines = by_line(facts, rows, facts.analysis.idle.cause_place)
    return tuple(_candidate(facts, where, of_line) for where, of_line in lines.items())


def _candidate(facts: Facts, where: Where, rows: Ints) -> Candidate:
    is_after = facts.analysis.idle.cause.where(IdleCause.AFTER_SYNCHRONISATION)[rows]
    waiting_ns = of_usual_step(facts, rows[~is_after])
    at_stake_ns = waiting_ns + _unrecorded(facts, rows)
    there = "at lines that are not known" if where == NOWHERE else "at this line"
    return Candidate(
        what=f"the CPU waits for the device {there}, and then the device for the CPU",
        at_stake_ns=at_stake_ns,
        sureness=Sureness.ESTIMATED,
        remedy="leave out what needs a value of the device at once (.item(), .cpu(), nonzero, "
        "print, an if on a tensor), or ask for it some steps later; log every hundredth step",
        where=where,
        why=(
            Figure("idle spans a step", spans_in_usual_step(facts, rows)),
            Figure("idle because of it", of_usual_step(facts, rows), FigureUnit.NS),
        ),
        idle=rows,
    )


def _unrecorded(facts: Facts, rows: Ints) -> int:
    """Return how long the device would idle after these waits in a usual step without a recording.

    From a wait on until the last piece after it the device idles for as long as the CPU takes,
    less what the device runs meanwhile. Half way between a CPU that is quicker in all of that
    without a recording, and one that is so where the device idles: trials lay between them.
    """
    idle = facts.analysis.idle
    rows = rows[np.lexsort((idle.start_ns[rows], idle.device[rows], idle.step[rows]))]
    is_after = idle.cause.where(IdleCause.AFTER_SYNCHRONISATION)[rows]
    others = [idle.step[rows], idle.device[rows]]
    begins = np.any([np.diff(each, prepend=each[:1]) != 0 for each in others], axis=0)
    stretch = np.cumsum(begins | ~is_after)[is_after]
    after = rows[is_after]
    firsts = np.flatnonzero(np.append(True, np.diff(stretch) != 0)[: len(after)])
    lasts = np.append(firsts[1:], len(after))[: len(firsts)] - 1
    if not len(firsts):
        return 0
    took = (idle.start_ns + idle.duration_ns)[after[lasts]] - idle.start_ns[after[firsts]]
    spent = np.add.reduceat(idle.duration_ns[after], firsts)
    least = np.maximum(spent - (took - took / RECORDING_SLOWS), 0)
    left = (least + spent / RECORDING_SLOWS) / 2
    step, devices = idle.step[after[firsts]], len(np.unique(idle.device))
    sums = sums_of_steps(facts.analysis.steps, step, left.astype(np.int64))
    return median_low(sums) // devices


RULE = Rule(
    name="synchronisation",
    title="A line at which the CPU waits for the device",
    means="At this line the CPU waited until the device had run all that it was given. Afterwards "
    "the device had nothing to do until the CPU had launched anew.",
    because="`.item()`, `.cpu()`, `nonzero`, `print` of a tensor and an `if` on one need a value "
    "that the device has yet to compute. The CPU loses the lead that would have hidden its "
    "launches.",
    remedy="Keep values on the device, add them up there, and read them every hundredth step; let "
    "masks take the place of `nonzero`; copy with `non_blocking=True` into pinned memory.",
    stake="The idle time of the usual step that is due to waits at this line: while the call had "
    "not yet returned, and afterwards up to as long as the device was busy during the waits, less "
    "what recording adds to it: half way between a CPU that is quicker without it by 1.45 times in "
    "all that it does until it has its lead again, and one that is so while the device idles.",
    judge=_judge,
)
