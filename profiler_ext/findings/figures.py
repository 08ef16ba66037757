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
    spent_ns = facts.median_per_step(launches, facts.launches.duration_ns[launches])
    return (
        Figure("launches a step", facts.launches_per_step(launches)),
        Figure("they take", spent_ns, FigureUnit.NS),
    )


def launching(facts: Facts, launches: Ints, removal_saving_ns: int) -> tuple[Figure, ...]:
    """Return what launches cost the CPU, where that counts: none of them sets the pace.

    Args:
        facts: what is known of the session.
        launches: rows of launches.
        removal_saving_ns: by how much the usual step would be shorter without them.
    """
    own = Figure("launching them costs the CPU", removal_saving_ns, FigureUnit.NS)
    return () if facts.pace.is_critical[launches].any() else (own,)
