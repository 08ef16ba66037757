"""Owns which launches are torch's own kernels of eager ops, and what a compiler makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from profiler_ext.findings.facts import Facts
from profiler_ext.records import Ints, Phase, Place, Scope

FUSION_SAVING: Final = 0.6
"""The part of their time that is gone once they are compiled, by the trials of ``uncompiled``."""
_MUCH_COMPILED = 0.25
"""The part of a step in compiled graphs from which on the rest of it is beside them."""
_NATIVE = "at::native::"
_PHASES = (Phase.FORWARD, Phase.BACKWARD)


def is_partly_compiled(facts: Facts) -> bool:
    """Return whether at least a quarter of the usual step runs in compiled graphs.

    Args:
        facts: what is known of the session.
    """
    compiled = np.flatnonzero(facts.in_steps(facts.launches.scope.where(Scope.COMPILED)))
    compiled_ns = facts.median_per_step(compiled, facts.launches.duration_ns[compiled])
    return compiled_ns > 0 and compiled_ns >= _MUCH_COMPILED * facts.step_ns


def eager_kernels(facts: Facts) -> Ints:
    """Return the rows of torch's own kernels, each of an eager op, that stand at a line.

    Products, convolutions and attention are libraries', and the optimizer's are of no line of the
    model: neither is among them.

    Args:
        facts: what is known of the session.
    """
    eager = facts.launches.scope.where(Scope.EAGER) & facts.named(lambda name: _NATIVE in name)
    return np.flatnonzero(facts.in_steps(eager & facts.all_places(_is_model_line)))


def launches_by_line(facts: Facts, launches: Ints) -> Iterator[Ints]:
    """Return the rows of the launches of each line.

    Args:
        facts: what is known of the session.
        launches: rows of launches, each with a place.
    """
    lines: dict[tuple[str | None, int | None], list[int]] = {}
    for launch in launches.tolist():
        place = facts.place(launch)
        lines.setdefault((place.file, place.line), []).append(launch)
    return (np.array(own, np.int64) for own in lines.values())


def _is_model_line(place: Place) -> bool:
    return place.phase in _PHASES and place.line is not None
