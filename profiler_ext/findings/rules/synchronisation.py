"""Owns the rule of lines at which the CPU waits for the device, so that it then has no lead."""

from __future__ import annotations

from collections.abc import Iterable

from profiler_ext.findings.facts import Facts, Lacking
from profiler_ext.findings.finding import NOWHERE, Figure, FigureUnit, Sureness, Where
from profiler_ext.findings.idleness import by_line, of_usual_step, pieces_of, spans_in_usual_step
from profiler_ext.findings.pace import unrecorded
from profiler_ext.findings.rule import Candidate, Rule
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
    at_stake_ns = waiting_ns + unrecorded(of_usual_step(facts, rows[is_after]))
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
    "not yet returned, and afterwards up to as long as the device was busy during the wait, less "
    "what recording adds to it.",
    judge=_judge,
)
