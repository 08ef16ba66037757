"""What a planted failure may cost, and what it may not.

The script's losses, gradients and exit status are those of plain Python, bit for bit. What the
session says of a launch is what it says without the failure, or nothing; where it says less, or a
file of it is not there, a gap or an error names the failure. Where it cannot even begin, one
sentence says so, before any step.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from verification.faults.runs import INTERRUPTED, Fault, Result

REFUSED = 2


class Verdict(StrEnum):
    """What a failure cost."""

    HARMLESS = "harmless"
    GAP = "named gap"
    LESS = "a file less, with a message"
    NO_SESSION = "no session, with a message"
    NOT_BEGUN = "one error, and the script was not begun"
    INTERRUPTED = "the interrupt is the script's"
    NOT_REACHED = "not reached"
    BROKE = "broke the script"
    LOST = "lost in silence"
    WRONG = "another line, module or link"
    TRACEBACK = "traceback"
    MONITORED = "left behind in sys.monitoring"


BORDER = "line_border"
"""A launch so near to where a line ends that the clocks do not tell: not the same in each run."""

FORBIDDEN = (
    Verdict.BROKE,
    Verdict.LOST,
    Verdict.WRONG,
    Verdict.TRACEBACK,
    Verdict.MONITORED,
)


def verdict(fault: Fault, result: Result, sound: Result) -> Verdict:
    """Judge a run.

    Args:
        fault: what was planted.
        result: the run with it.
        sound: the run without.
    """
    if not result.fired:
        return Verdict.NOT_REACHED
    if result.left_behind:
        return Verdict.MONITORED
    if is_wrong(result.launches or [], sound.launches or []):
        return Verdict.WRONG
    if fault.error is KeyboardInterrupt and result.code == INTERRUPTED:
        return Verdict.INTERRUPTED
    if not result.has_begun and result.code == REFUSED and _says_it(result):
        return Verdict.NOT_BEGUN
    if result.digest != sound.digest or result.code != sound.code:
        return Verdict.BROKE
    return _of_session(result, sound)


def _of_session(result: Result, sound: Result) -> Verdict:
    if "Traceback" in result.stderr:
        return Verdict.TRACEBACK
    is_same = same(result.launches or [], sound.launches or [])
    if is_same and result.files == sound.files:
        return Verdict.HARMLESS
    if is_same and _says_it(result):
        return Verdict.LESS
    if result.launches is not None and _names_it(result):
        return Verdict.GAP
    return Verdict.NO_SESSION if _says_it(result) else Verdict.LOST


def same(launches: list[Any], others: list[Any]) -> bool:
    """Tell whether two runs say the same of each launch, as far as their clocks told both."""
    return len(launches) == len(others) and all(
        one == other or BORDER in (one[2], other[2])
        for one, other in zip(launches, others, strict=True)
    )


def is_wrong(launches: list[Any], sound: list[Any]) -> bool:
    """Tell whether any launch has a line, module or link that it has not without the failure."""
    if len(launches) == len(sound):
        pairs = zip(launches, sound, strict=True)
        return any(not _is_expected(launch, [expected]) for launch, expected in pairs)
    known: dict[str, list[Any]] = {}
    for launch in sound:
        known.setdefault(launch[0], []).append(launch)
    return any(not _is_expected(launch, known.get(launch[0], [])) for launch in launches)


def _is_expected(launch: Any, expected: list[Any]) -> bool:
    """Tell whether each row of a launch says what one of an expected one says, or less.

    Where lines tell that eager work in a backward is a hook or a forward run again, there is no
    link; without them torch's own number of the node is one.
    """
    name, rows, _, is_compiled = launch
    if not rows or any(other[0] == name and other[2] == BORDER for other in expected):
        return True
    reported = [other[1] for other in expected if other[0] == name]
    eager = [[[*row[:-1], row[-1] or None] for row in each] for each in reported if not is_compiled]
    return any(all(_is_part(row, each) for row in rows) for each in eager or reported)


def _is_part(row: list[str], rows: list[Any]) -> bool:
    return any(
        all(own in ("", other) or other is None for own, other in zip(row, each, strict=True))
        for each in rows
    )


def _names_it(result: Result) -> bool:
    return any("capture_failed" in note or "planted" in note for note in result.notes)


def _says_it(result: Result) -> bool:
    return "profiler-ext: " in result.stderr and "Traceback" not in result.stderr
