"""What a step shows: each launch by its op, phase, and the name of its line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import profiler_ext
from profiler_ext.records.analysis import Analysis, Place
from profiler_ext.sessions.session import Session

_MARKER = re.compile(r"# line: ([\w ]+\w)")


@dataclass(frozen=True, slots=True)
class Seen:
    """One launch.

    Attributes:
        op: its op, without ``aten::``.
        phase: its phase.
        line: the name of its line; the gap's where it has none.
        module: its module.
        evidence: the rule that told the line.
        link: the rule that tied it to forward work.
        caller: the name of the line that called what has this line.
    """

    op: str
    phase: str
    line: str
    module: str | None
    evidence: str
    link: str
    caller: str

    @property
    def brief(self) -> tuple[str, str, str]:
        """Op, phase and line."""
        return self.op, self.phase, self.line


def recorded(step: Callable[[], Any], *, is_warm: bool = True, **options: Any) -> Session:
    """Return the session of one step.

    Args:
        step: the step.
        is_warm: it ran once before.
        options: those of the profiler.
    """
    if is_warm:
        step()
    with profiler_ext.profile(strict=True, **options) as profile:
        step()
        profile.step()
    return profile.session


def seen(step: Callable[[], Any], *ops: str, **options: Any) -> list[Seen]:
    """Record a step, and return its launches in order of time.

    Args:
        step: the step.
        ops: those to keep, without ``aten::``; all where none is named.
        options: those of :func:`recorded`.
    """
    return launches(recorded(step, **options).analysis, *ops)


def launches(analysis: Analysis, *ops: str) -> list[Seen]:
    """Return the launches of an analysis in order of time, those of some ops where any is named."""
    assert analysis.shares.duration_ns.sum() == analysis.launches.duration_ns.sum()
    places = [analysis.places[place] for place in analysis.shares.place.tolist()]
    every = [_seen(place) for place in places]
    return [each for each in every if not ops or each.op in ops]


def briefly(step: Callable[[], Any], *ops: str, **options: Any) -> list[tuple[str, str, str]]:
    """Return op, phase and line of a step's launches; see :func:`seen`."""
    return [each.brief for each in seen(step, *ops, **options)]


def _seen(place: Place) -> Seen:
    return Seen(
        op=(place.aten_op or "").removeprefix("aten::"),
        phase=str(place.phase),
        line=_name(place.file, place.line) or f"gap {place.gap}",
        module=place.module,
        evidence=str(place.evidence or ""),
        link=str(place.forward_evidence or ""),
        caller=_name(place.caller_file, place.caller_line),
    )


def _name(file: str | None, line: int | None) -> str:
    """Return the marker of a line; the text of the line where it has none."""
    if file is None or line is None or not Path(file).exists():
        return "" if file is None else f"{file}:{line}"
    text = Path(file).read_text().splitlines()[line - 1]
    found = _MARKER.search(text)
    return found[1] if found else text.strip()
