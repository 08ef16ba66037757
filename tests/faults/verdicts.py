"""Owns what a planted failure may cost, and what it may not.

The script's losses, gradients and exit status are those of plain Python, bit for bit. What the
session says of a launch is what it says without the failure, or nothing; where it says less, a gap
or an error names the failure.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from tests.faults.runs import Result


class Verdict(StrEnum):
    """What a failure cost; all but the first three are forbidden."""

    HARMLESS = "harmless"
    GAP = "named gap"
    SAID = "no session, and said so"
    BROKE = "broke the script"
    LOST = "lost in silence"
    WRONG = "another line, module or link"
    TRACEBACK = "traceback"


ALLOWED = {Verdict.HARMLESS, Verdict.GAP, Verdict.SAID}


def verdict(result: Result, sound: Result, code: int = 0) -> Verdict:
    """Judge a run.

    Args:
        result: the run with the failure.
        sound: the run without.
        code: the exit status that the script has without us.
    """
    if result.digest != sound.digest or result.code != code:
        return Verdict.BROKE
    if "Traceback" in result.stderr:
        return Verdict.TRACEBACK
    if result.launches is None:
        return Verdict.SAID if "profiler-ext: " in result.stderr else Verdict.LOST
    assert sound.launches is not None
    if _is_wrong(result.launches, sound.launches):
        return Verdict.WRONG
    if result.launches == sound.launches:
        return Verdict.HARMLESS
    return Verdict.GAP if _names_it(result) else Verdict.LOST


def _is_wrong(launches: list[Any], sound: list[Any]) -> bool:
    """Tell whether any launch has a line, module or link that it has not without the failure."""
    if len(launches) == len(sound):
        pairs = zip(launches, sound, strict=True)
        return any(not _is_said(launch, [expected]) for launch, expected in pairs)
    known: dict[str, list[Any]] = {}
    for launch in sound:
        known.setdefault(launch[0], []).append(launch)
    return any(not _is_said(launch, known.get(launch[0], [])) for launch in launches)


def _is_said(launch: Any, expected: list[Any]) -> bool:
    name, rows, _, _ = launch
    if all(row[-1] != "line" for row in rows):
        return True
    return any(rows == other[1] for other in expected if other[0] == name)


def _names_it(result: Result) -> bool:
    return any("capture_failed" in note or "planted" in note for note in result.notes)
