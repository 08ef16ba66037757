"""The rooms whose code is mutated, and what is drawn of their mutants."""

from __future__ import annotations

import random
from collections.abc import Iterable

ROOMS = {
    "attribution": ("profiler_ext.attribution.",),
    "lineage": (
        "profiler_ext.capture.lineage.",
        "profiler_ext.capture.traces.",
        "profiler_ext.records.lineage.",
    ),
}


def room_of(mutant: str) -> str:
    """Return the room of a mutant, by the module that its name begins with."""
    (room,) = (room for room, modules in ROOMS.items() if mutant.startswith(modules))
    return room


def drawn(mutants: Iterable[str], count: int, seed: int) -> list[str]:
    """Return so many of the mutants, each as likely as another, the same for the same seed."""
    known = sorted(mutants)
    return sorted(random.Random(seed).sample(known, min(count, len(known))))
