"""The processes that run cases side by side; each holds the libraries already."""

from __future__ import annotations

import multiprocessing
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from verification.hostile import table
from verification.hostile.making import content, text
from verification.hostile.mutating import Mutation
from verification.hostile.reference import reference_s
from verification.hostile.running import Run, run_case
from verification.hostile.ways import WAYS, walk

_ALL = tuple(WAYS)
_known_s = cache(reference_s)
"""What the good file takes this process: measured again where a case takes too long by that."""


def run_named(name: str, ways: tuple[str, ...] = _ALL) -> list[Run]:
    """Run one case of the table."""
    return run_case(name, table.CASES[name].make, ways, _known_s())


def run_mutation(seed: int) -> list[Run]:
    """Run one mutation; every third one of a session of any size."""
    make = Mutation(seed, small_only=seed % 3 != 0)
    return run_case(f"mutation {seed}", make, _ALL, _known_s())


def mapped(
    jobs: int, function: Callable[[Any], list[Run]], items: Iterable[Any]
) -> Iterator[list[Run]]:
    """Run in processes that hold the libraries already; each case is a child of one of them."""
    with processes(jobs) as pool:
        waiting = []
        for item in items:
            waiting.append(pool.submit(function, item))
            while len(waiting) > 4 * jobs:
                yield waiting.pop(0).result()
        for future in waiting:
            yield future.result()


def processes(jobs: int) -> ProcessPoolExecutor:
    """Return so many processes, started anew: a fork of one with threads may hang."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, context, initializer=warm)


def warm() -> None:
    """Import what a run imports, so that a child need not."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        path = content(text())(Path(folder))
        for _, go in walk(path, Path(folder), _ALL):
            go()
