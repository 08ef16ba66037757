"""Owns what rules ask of idle time: how much of a step a cause has, and at which lines."""

from __future__ import annotations

from statistics import median_low

import numpy as np

from profiler_ext.findings.facts import Facts, location_of
from profiler_ext.findings.finding import NOWHERE, Location
from profiler_ext.findings.steps import sum_by_step
from profiler_ext.records import Codes, IdleCause, Ints


def idle_pieces(facts: Facts, *causes: IdleCause) -> Ints:
    """Return the rows of the pieces of idle time that have one of these causes.

    Args:
        facts: what is known of the session.
        *causes: the causes.
    """
    return np.flatnonzero(facts.analysis.idle.cause.where(*causes))


def median_per_step(facts: Facts, rows: Ints) -> int:
    """Return how long pieces are in the usual step, on one device: the lower median of the steps.

    Args:
        facts: what is known of the session.
        rows: rows of pieces of idle time.
    """
    idle = facts.analysis.idle
    step, duration_ns = idle.step[rows], idle.duration_ns[rows]
    sums = sum_by_step(facts.analysis.steps, step, duration_ns)
    return median_low(sums) // max(facts.idle_devices, 1) if sums else 0


def idle_spans_per_step(facts: Facts, rows: Ints) -> int:
    """Return of how many idle spans these are pieces, in the usual step.

    Args:
        facts: what is known of the session.
        rows: rows of pieces of idle time.
    """
    idle = facts.analysis.idle
    step, span = idle.step[rows], idle.span[rows]
    own = np.unique(np.stack([step, span]), axis=1)[0]
    counts = sum_by_step(facts.analysis.steps, own, np.ones_like(own))
    return median_low(counts) if counts else 0


def idle_by_line(facts: Facts, rows: Ints, places: Codes) -> dict[Location, Ints]:
    """Return the pieces by the line that they are due to; ``NOWHERE`` has those without one.

    Args:
        facts: what is known of the session.
        rows: rows of pieces of idle time.
        places: the place of each piece of all: where the CPU was, or that of the cause.
    """
    lines: dict[Location, list[Ints]] = {}
    order = np.argsort(places[rows], kind="stable")
    each, firsts = np.unique(places[rows][order], return_index=True)
    of_places = np.split(rows[order], firsts[1:])
    for at, of_place in zip(each.tolist(), of_places, strict=False):
        place = facts.analysis.idle.places[at]
        where = NOWHERE if place.line is None else location_of(place)
        lines.setdefault(where, []).append(of_place)
    return {where: np.sort(np.concatenate(of_line)) for where, of_line in lines.items()}
