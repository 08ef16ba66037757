"""Owns what comes of a condition: does a change go beyond both the noise and the limit.

The limit is held against the estimate and not against the lower end of its interval: that would let
pass what is most likely beyond the limit, and the more so the fewer runs there are. That nothing
changed is what must not raise an alarm, and there the test against noise stands. What the noise
hides is not passed over: where the interval's far end is beyond the limit it is ``unclear``.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import replace

from profiler_ext.comparison.comparison import Comparison
from profiler_ext.comparison.records import Change
from profiler_ext.comparison.words import CHANGED, Verdict
from profiler_ext.errors import UsageError
from profiler_ext.gate.chosen import Selection, changes_of, chosen, lines_of
from profiler_ext.gate.conditions import Condition, Kind, Limit, Unit, parse
from profiler_ext.gate.names import name_of
from profiler_ext.gate.records import Gate, Evaluation, Result, Sizes
from profiler_ext.gate.words import WORST_LAST, Outcome

_SHOWN_LINES = 3
_MAX_SUGGESTIONS = 3


def judge(comparison: Comparison, conditions: Sequence[str], sizes: Sizes | None = None) -> Gate:
    """Hold a comparison against conditions.

    Args:
        comparison: two sides of runs.
        conditions: as the user wrote them.
        sizes: of the recordings, where they are files.

    Returns:
        What came of each.

    Raises:
        UsageError: A condition is not understood, or nothing of either side is what it means.
    """
    if not conditions:
        raise UsageError("a gate needs at least one condition, such as 'total > +5%'")
    parsed = [parse(text) for text in conditions]
    return Gate(tuple(_result(comparison, each, sizes) for each in parsed))


def _result(comparison: Comparison, condition: Condition, sizes: Sizes | None) -> Result:
    if condition.kind is Kind.SESSION_SIZE:
        return Result(condition, (_size_evaluation(condition, sizes),))
    if condition.kind is Kind.COMPILE:
        return Result(condition, (_compile_evaluation(comparison, condition),))
    of = chosen(comparison, condition)
    if not of.names:
        raise _matches_nothing_error(comparison, condition)
    every = [
        _with_lines(comparison, condition, of, group, _evaluation(condition, name, change))
        for group, (name, change) in enumerate(
            zip(of.names, changes_of(comparison, of), strict=True)
        )
    ]
    every.sort(key=lambda each: (-WORST_LAST.index(each.outcome), -abs(each.delta), each.name))
    return Result(condition, tuple(every))


def _evaluation(condition: Condition, name: str, change: Change) -> Evaluation:
    base = change.base_per_step_ns
    return Evaluation(
        name=name,
        base=base,
        head=change.head_per_step_ns,
        unit=Unit.NS,
        interval=change.interval,
        verdict=change.verdict,
        outcome=_outcome(condition.limits, base, change),
    )


def _outcome(limits: Sequence[Limit], base: float, change: Change) -> Outcome:
    if change.verdict is Verdict.TOO_FEW:
        return Outcome.TOO_FEW
    if change.verdict is Verdict.NOT_COMPARABLE:
        return Outcome.NOT_COMPARABLE
    if change.verdict in CHANGED:
        return _failed_if(_is_beyond(limits, base, change.delta_ns))
    if change.interval is None:
        return Outcome.PASSED
    far = change.interval.high_ns if limits[0].sign > 0 else change.interval.low_ns
    return Outcome.UNCLEAR if _is_beyond(limits, base, far) else Outcome.PASSED


def _is_beyond(limits: Sequence[Limit], base: float, delta: float) -> bool:
    """Tell whether a difference is beyond all limits; of nothing, any more is beyond any part."""
    return all(
        limit.sign * delta > limit.amount * (abs(base) if limit.unit is Unit.PART else 1.0)
        for limit in limits
    )


def _failed_if(is_beyond: bool) -> Outcome:
    return Outcome.FAILED if is_beyond else Outcome.PASSED


def _with_lines(
    comparison: Comparison, condition: Condition, of: Selection, group: int, judged: Evaluation
) -> Evaluation:
    """Return what failed with the lines that have most of it."""
    if judged.outcome is not Outcome.FAILED:
        return judged
    sign = condition.limits[0].sign
    lines = [line for line in lines_of(comparison, of.only(group)) if sign * line.delta_ns > 0]
    return replace(judged, lines=tuple(lines[:_SHOWN_LINES]))


def _compile_evaluation(comparison: Comparison, condition: Condition) -> Evaluation:
    change = comparison.table("compile").total
    if not change.base_ns and not change.head_ns:
        raise UsageError(
            f"the condition {condition.text!r} is of nothing: neither side compiled anything while "
            "it was watched"
        )
    return _evaluation(condition, "", change)


def _size_evaluation(condition: Condition, sizes: Sizes | None) -> Evaluation:
    if sizes is None:
        raise UsageError(
            f"the condition {condition.text!r} is of files, and a side was given as a session: "
            "give the paths"
        )
    base, head = (sum(each) / len(each) for each in (sizes.base, sizes.head))
    is_beyond = _is_beyond(condition.limits, base, head - base)
    return Evaluation("", base, head, Unit.BYTES, None, None, _failed_if(is_beyond))


def _matches_nothing_error(comparison: Comparison, condition: Condition) -> UsageError:
    names = dict.fromkeys(
        name
        for side in comparison.matched.sides
        for subject in side.parts.subjects
        if (name := name_of(condition.kind, subject)) is not None
    )
    suggestions = difflib.get_close_matches(condition.name or "", list(names), _MAX_SUGGESTIONS, cutoff=0.5)
    offered = f"; like it are {', '.join(map(repr, suggestions))}" if suggestions else ""
    what = "idle" if condition.kind is Kind.IDLE else "device"
    return UsageError(
        f"the condition {condition.text!r} is of nothing: no {what} time of either side is of it"
        f"{offered}"
    )
