"""The faults of another torch: a private name that is declared is not what torch calls it.

What is changed is the declaration: torch keeps working, and to the accessor the name is gone, as
it is where torch removed it or calls it something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from profiler_ext.torch_compat import names, private
from profiler_ext.torch_compat.private import Name
from verification.faults.planting import PLANTED
from verification.faults.runs import Result
from verification.faults.verdicts import is_wrong


@dataclass(frozen=True)
class Renamed:
    """One declared name, or none, is gone.

    Attributes:
        name: its place in ``names.ALL``; ``None`` where all are there.
    """

    name: int | None = None

    def begin(self) -> None:
        """Let it be gone in this process."""
        private.forget()
        if self.name is None:
            _count_reads()
        else:
            name = names.ALL[self.name]
            path = name.path.removesuffix("'").removesuffix("()")
            object.__setattr__(name, "path", f"{path}_gone{name.path[len(path) :]}")
            vars(name).pop("name", None)  # what was worked out of the path that is gone

    def label(self) -> str:
        """Return its name for a person."""
        return (
            ""
            if self.name is None
            else f"{names.ALL[self.name].module}.{names.ALL[self.name].path}"
        )


def _count_reads() -> None:
    """Count how often each name is asked for, where calls are counted."""
    place = {name: at for at, name in enumerate(names.ALL)}
    plain = Name.name.func

    def counted(name: Name) -> str:
        if PLANTED.is_armed and name in place:
            PLANTED.calls[READ + str(place[name])] += 1
        return plain(name)

    type.__setattr__(Name, "name", property(counted))


READ = "name "
"""How the counts of names begin, among those of functions."""


class Verdict(StrEnum):
    """What a name that is gone cost; all but the first two are forbidden."""

    GAP = "named gap"
    REFUSED = "error at start"
    BROKE = "broke the script"
    UNNAMED = "no gap names it"
    WRONG = "another line, module or link"
    TRACEBACK = "traceback"


def _undone(text: str) -> str:
    """Put what is added to a name behind the marks that may end it."""
    return text.replace("_gone'", "'_gone").replace("_gone()", "()_gone")


ALLOWED = {Verdict.GAP, Verdict.REFUSED}


def verdict(result: Result, sound: Result, gone: str) -> Verdict:
    """Judge a run in which a name is gone.

    Args:
        result: the run.
        sound: the run in which all are there.
        gone: the name.
    """
    if "Traceback" in result.stderr:
        return Verdict.TRACEBACK
    if result.digest is None and f"{gone}_gone" in _undone(result.stderr):
        return Verdict.REFUSED
    if result.digest != sound.digest or result.code != sound.code:
        return Verdict.BROKE
    if result.launches is None or sound.launches is None:
        return Verdict.UNNAMED
    if is_wrong(result.launches, sound.launches):
        return Verdict.WRONG
    return Verdict.GAP if any("private_name" in note for note in result.notes) else Verdict.UNNAMED
