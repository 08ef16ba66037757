"""Owns what answers say of a session as a whole: its steps, its ledger, its gaps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice
from typing import Any, Protocol, Unpack

from profiler_ext.exporters import tables
from profiler_ext.exporters.answers.parts import (
    GapRow,
    LedgerRow,
    SessionFacts,
    StepFacts,
    Whole,
)
from profiler_ext.exporters.table_texts import records
from profiler_ext.findings import Findings
from profiler_ext.records import Analysis, GapReason, Level, Scope
from profiler_ext.rooflines.utilisation import utilisation_by_step, walls_ns

MAX_STEPS = 32
"""So many steps are told one by one; tables sum over all."""


class SessionLike(Protocol):
    """What an answer is about: a session, or the sessions of several ranks."""

    @property
    def analyses(self) -> tuple[Analysis, ...]:
        """The analyses, one for each rank."""

    @property
    def found(self) -> Findings:
        """What to do first."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What to tell the user."""

    def table(
        self, name: str, *arguments: Any, **filters: Unpack[tables.Filters]
    ) -> tables.DataFrame:
        """Return a table by its name.

        Args:
            name: the table's name.
            *arguments: what that table takes besides filters.
            **filters: the step, rank, phase or scope.
        """


def session_facts(source: SessionLike) -> SessionFacts:
    """Return what was profiled.

    Args:
        asked: a session, or several ranks.
    """
    settings = source.analyses[0].recording.settings
    devices = (name for each in source.analyses for name in each.device_names)
    steps = [(each, number) for each in source.analyses for number in walls_ns(each)]
    return SessionFacts(
        command=list(settings.command),
        torch_version=settings.torch_version or None,
        devices=list(dict.fromkeys(devices)),
        ranks=[each.recording.settings.rank for each in source.analyses],
        world_size=settings.world_size,
        launches=sum(each.launch_count for each in source.analyses),
        step_count=len({number for _, number in steps}),
        steps=list(islice(chain.from_iterable(map(_steps, source.analyses)), MAX_STEPS)),
    )


def _steps(analysis: Analysis) -> list[StepFacts]:
    """Return the first steps of one rank; steps of one number are told as one."""
    walls = dict(islice(walls_ns(analysis).items(), MAX_STEPS))
    busy = dict.fromkeys(walls, 0)
    for line in analysis.ledger:
        if line.step in busy and line.scope != Scope.IDLE:
            busy[line.step] += line.duration_ns
    found = utilisation_by_step(analysis, list(walls))
    return [
        StepFacts(
            rank=analysis.recording.settings.rank,
            step=number,
            wall_ns=walls[number],
            busy_ns=busy[number],
            mfu=None if each is None else each.mfu,
            est_flops=None if each is None else each.flops,
            known_fraction=None if each is None else each.known_fraction,
            counted_fraction=None if each is None else each.counted_fraction,
        )
        for number, each in zip(walls, found, strict=True)
    ]


def whole(source: SessionLike) -> Whole:
    """Return how much of the time is led to lines, and why the rest is not.

    Args:
        asked: a session, or several ranks.
    """
    rows = records(source.table("coverage"))
    named = ("scope", "level", "category", "duration_ns", "fraction")
    return Whole(
        ledger=[LedgerRow(**{name: row[name] for name in named}) for row in rows],
        gaps=_gaps(rows),
        line_fraction=_line_fraction(source.analyses, Scope.COMPILED),
        eager_line_fraction=_line_fraction(source.analyses, Scope.EAGER),
        linked_fraction=tables.fraction_linked_to_forward(source.analyses),
        notes=list(source.notes),
    )


def _line_fraction(analyses: Sequence[Analysis], scope: Scope) -> float | None:
    ledger = [line for analysis in analyses for line in analysis.ledger]
    is_there = any(line.scope == scope and line.duration_ns for line in ledger)
    return tables.fraction_of(ledger, Level.LINE, scope) if is_there else None


def _gaps(rows: Sequence[dict[str, Any]]) -> list[GapRow]:
    """Sum the ledger's rows that are gaps, by reason, longest first."""
    busy = sum(row["duration_ns"] for row in rows if row["scope"] != Scope.IDLE)
    sums = tables.gap_times_ns((row["category"], row["duration_ns"]) for row in rows)
    return [gap_row(reason, duration_ns, busy) for reason, duration_ns in sums.items()]


def gap_row(reason: str, duration_ns: int, of_ns: int) -> GapRow:
    """Return a gap with its words, and what to do about it.

    Args:
        reason: a ``GapReason``.
        duration_ns: the time that has it.
        of_ns: the whole that it is a part of.
    """
    gap = GapReason(reason)
    return GapRow(
        gap=gap.value,
        words=gap.words,
        duration_ns=duration_ns,
        fraction=duration_ns / of_ns if of_ns else None,
        remedy=gap.remedy,
        page=gap.page,
    )
