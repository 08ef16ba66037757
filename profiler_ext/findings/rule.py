"""Owns what a rule is: its words for the documentation, and the function that judges a session."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from profiler_ext.findings.facts import Facts, CannotJudge
from profiler_ext.findings.finding import NOWHERE, Figure, Stake, Confidence, Location
from profiler_ext.records import Ints

NO_ROWS: Ints = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a rule would say; it is said where enough is at stake.

    Attributes:
        what, where, sureness, why, remedy, stake: as a ``Finding`` has them.
        at_stake_ns: time at stake.
        busy_ns: of that what the launches run, where the rest is idle time.
        of_ns: the whole that it is part of; ``None`` for the wall time of the usual step.
        launches: rows of the launches whose time it counts.
        idle: rows of ``Analysis.idle``, the idle time that it counts.
    """

    what: str
    at_stake_ns: int
    sureness: Confidence
    remedy: str
    where: Location = NOWHERE
    why: tuple[Figure, ...] = ()
    stake: Stake = Stake.STEP
    of_ns: int | None = None
    busy_ns: int = 0
    launches: Ints = field(default_factory=lambda: NO_ROWS)
    idle: Ints = field(default_factory=lambda: NO_ROWS)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule.

    Attributes:
        name: what findings and the documentation call it.
        title: what heads its section.
        means: what it says of a session.
        because: why that happens.
        remedy: what to try.
        stake: how the time at stake is computed.
        judge: the function that judges a session.
    """

    name: str
    title: str
    means: str
    because: str
    remedy: str
    stake: str
    judge: Callable[[Facts], Iterable[Candidate] | CannotJudge]
