"""What time is measured by: what a good file takes, in the process that reads the others.

A limit in seconds is a fact about a machine, and about what else it does. So a hostile file may
take so many times as long as a good one does there and then, both in time of the processor.
"""

from __future__ import annotations

import resource
import tempfile
from functools import cache
from pathlib import Path

from verification.hostile.making import content
from verification.hostile.sizes import good
from verification.hostile.ways import walk

_EVENTS = 20_000
_TIMES = 90
"""The slowest legal file takes 17 times as long as the good one, or 58 on a machine whose pages
are slow to get."""
_TIMES_A_MB = 1.1
"""Four times what a good file takes of its size, where that is more."""


def used_s() -> float:
    """Return the time of the processor that this process has taken."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def reference_s() -> float:
    """Return what it takes this process, as things are, to read a good file and to report it.

    Of two times the shorter: the first may import what a report needs.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = content(_good())(Path(folder))
        return min(_taken_s(path, Path(folder)) for _ in range(2))


def _taken_s(path: Path, out: Path) -> float:
    before = used_s()
    for _, go in walk(path, out, ("report",)):
        go()
    return used_s() - before


def times_allowed(large_mb: float) -> float:
    """Return how many times as long as the good file a file of a size may take."""
    return max(_TIMES, _TIMES_A_MB * large_mb)


@cache
def _good() -> bytes:
    return good(_EVENTS)
