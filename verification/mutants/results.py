"""What mutmut found of mutants, as text: the score of each room, and what survived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.stats import status_by_exit_code
from mutmut.utils.file_utils import walk_mutatable_files

from verification.mutants.rooms import ROOMS, room_of

DEAD = {"killed", "segfault"}
"""A mutant is dead when a test failed of it, or it broke the process. What ran out of time is not:
the machine may have been busy."""


def all_results() -> dict[str, str]:
    """Return for each mutant that was made what became of it: `survived`, `not checked`, ..."""
    results = dict[str, str]()
    for path in walk_mutatable_files():
        data = SourceFileMutationData(path=path)
        data.load()
        results |= {name: status_by_exit_code[code] for name, code in data.exit_code_by_key.items()}
    return results


def survivors(results: Mapping[str, str]) -> list[str]:
    """Return those that are not dead."""
    return [name for name, status in sorted(results.items()) if status not in DEAD]


def scores(results: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each room, and one for both."""
    dead, every = _by_room(results, DEAD), _by_room(results, set(results.values()))
    for room in (*(room for room in ROOMS if every[room]), "both"):
        yield f"{room}: {dead[room]} of {every[room]} died, {dead[room] / every[room]:.0%}"


def described(mutants: Iterable[str], results: Mapping[str, str]) -> Iterator[str]:
    """Yield of each mutant its name, its state and what it changes."""
    for name in mutants:
        changed = (line for line in get_diff_for_mutant(name).splitlines()[2:])
        diff = "\n".join(line for line in changed if line[:1] in "+-")
        yield f"\n{name}: {results[name]}\n{diff}"


def _by_room(results: Mapping[str, str], wanted: set[str]) -> Counter[str]:
    rooms = Counter(room_of(name) for name, status in results.items() if status in wanted)
    rooms["both"] = rooms.total()
    return rooms
