"""Owns the figures that several rules tell of launches."""

from __future__ import annotations

from profiler_ext.findings.facts import Facts
from profiler_ext.findings.finding import Figure, FigureUnit
from profiler_ext.records import Ints


def count_and_time(facts: Facts, launches: Ints) -> tuple[Figure, Figure]:
    """Return how many of some launches the usual step has, and how long they run.

    Args:
        facts: what is known of the session.
        launches: rows of launches.
    """
    spent_ns = facts.of_usual_step(launches, facts.launches.duration_ns[launches])
    return (
        Figure("launches a step", facts.count_in_usual_step(launches)),
        Figure("they take", spent_ns, FigureUnit.NS),
    )


def launching(facts: Facts, launches: Ints, removed_ns: int) -> tuple[Figure, ...]:
    """Return what launches cost the CPU, where that counts: none of them sets the pace.

    Args:
        facts: what is known of the session.
        launches: rows of launches.
        removed_ns: by how much the usual step would be shorter without them.
    """
    own = Figure("launching them costs the CPU", removed_ns, FigureUnit.NS)
    return () if facts.pace.sets[launches].any() else (own,)
