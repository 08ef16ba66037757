"""Owns what the page about one thing says first: its time, its phases, its roofline, its steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from profiler_ext.exporters.answers.explained import Explanation, StepTime
from profiler_ext.exporters.display_text import percent_text, time_text
from profiler_ext.exporters.roofline_texts import roofline_text, savings_text, work_text
from profiler_ext.records import Phase

_SHOWN_STEPS = 8
_MIN_KNOWN, _MOSTLY_KNOWN = 0.0005, 0.9


def overview_lines(explanation: Explanation) -> Iterator[str]:
    """Yield what is told of the whole: its time, its phases, its roofline, its steps.

    Args:
        told: all about one thing.
    """
    time = explanation.time
    if explanation.silence is not None:
        yield f"no device time: {explanation.silence}"
        return
    each = PerStep.of(explanation)
    whole = f", which take {each.time(time.inclusive_ns)} whole" if is_part(explanation) else ""
    part = percent_text(time.fraction or 0, 1)
    yield (
        f"{each.time(time.duration_ns)} a step, {part} of the device time; "
        f"{each.count(time.launches)} launches a step{whole}"
    )
    phases = [phase for phase in Phase if phase in time.phases_ns]
    yield " · ".join(f"{phase.words} {each.time(time.phases_ns[phase])}" for phase in phases)
    if time.below_ns:
        yield f"{each.time(time.below_ns)} of it in modules below"
    if time.called_ns:
        yield f"besides, lines that it calls take {each.time(time.called_ns)}"
    yield from filter(None, (_roofline_line(explanation), *_step_texts(explanation)))


def is_part(explanation: Explanation) -> bool:
    """Tell whether its launches compute something else too."""
    return explanation.time.inclusive_ns != explanation.time.duration_ns


@dataclass(frozen=True, slots=True)
class PerStep:
    """Times and counts of a mean step, as a person reads them.

    Attributes:
        steps: over how many steps they are summed.
    """

    steps: int

    @classmethod
    def of(cls, explanation: Explanation) -> PerStep:
        """Return the steps that an explanation sums over."""
        return cls(max(explanation.time.rank_steps, 1))

    def time(self, duration_ns: int) -> str:
        """Return a time of a mean step."""
        return time_text(duration_ns / self.steps)

    def count(self, number: int) -> str:
        """Return how often something is in a mean step."""
        return f"{number / self.steps:,.1f}".removesuffix(".0")


def _roofline_line(explanation: Explanation) -> str:
    if explanation.roofline is None:
        return ""
    steps = max(explanation.time.rank_steps, 1)
    row = msgspec.structs.asdict(explanation.roofline)
    for name in ("est_bytes", "est_flops", "could_save_ns"):
        row[name] = None if row[name] is None else row[name] / steps
    known = explanation.roofline.known_ns / explanation.time.duration_ns if explanation.time.duration_ns else 1
    if known < _MIN_KNOWN:
        return "bytes and operations are not known"
    if known < _MOSTLY_KNOWN:
        return f"bytes and operations are known for {percent_text(known, 1)} of its time only"
    saved = savings_text(row)
    parts = (roofline_text(row), work_text(row), saved and f"could save {saved}")
    return " · ".join(filter(None, parts))


def _step_texts(explanation: Explanation) -> list[str]:
    """Return its time in each step; of many the shortest, the median and the longest."""
    steps = explanation.steps
    if len(steps) < 2:
        return []
    if len(steps) <= _SHOWN_STEPS:
        ranks = len({step.rank for step in steps}) > 1
        return ["; ".join(f"{_step(step, ranks)}: {time_text(step.duration_ns)}" for step in steps)]
    times = sorted(step.duration_ns for step in steps)
    shown = (times[0], times[(len(times) - 1) // 2], times[-1])
    low, middle, high = map(time_text, shown)
    return [f"a step: {low} at least, {middle} at the median, {high} at most ({len(steps)} told)"]


def _step(step: StepTime, ranks: bool) -> str:
    return f"step {step.step}" + (f" of rank {step.rank}" if ranks else "")
