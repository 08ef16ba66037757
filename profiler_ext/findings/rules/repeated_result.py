"""The rule for values that a step computes again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit, Location
from profiler_ext.findings.rule import Candidate, Rule, Turn, count_and_time, launching
from profiler_ext.findings.rules import (
    rebuilt_constant,
    recomputed_prefix,
    repeated_backward,
    repeated_call,
    repeated_cast,
    unmerged_weight,
)
from profiler_ext.findings.values import (
    ALL,
    ValueGroup,
    Weighed,
    frames_of,
    grouped,
    saved_ns,
    unsaid,
    values_of,
    weighed_by_repeats,
)
from profiler_ext.records.lineage import Frame

_MIN_SHARE = 0.25
_MIN_TIMES = 1.75  # less is twice for some, and once for others
# What they have of the text says more exactly what to do
_BY_TEXT = (
    repeated_call.RULE,
    repeated_cast.RULE,
    repeated_backward.RULE,
    recomputed_prefix.RULE,
    rebuilt_constant.RULE,
    unmerged_weight.RULE,
)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    values = values_of(facts)
    if isinstance(values, CannotJudge):
        return values
    weighed = weighed_by_repeats(facts, values)
    return unsaid(facts, _candidates(facts, weighed), _BY_TEXT)


def _candidates(facts: Facts, weighed: Weighed) -> Iterator[Candidate]:
    for group in grouped(facts, weighed, _MIN_SHARE):
        most_ns = saved_ns(facts, group)
        lines = _lines_apart(facts, weighed, group) if group.share >= ALL else None
        yield Candidate(
            summary=_summary(group, lines[0] if lines else None),
            est_saving_ns=most_ns,
            confidence=Confidence.ESTIMATED,
            remedy="compute it once, before the loop or the calls, and keep the result",
            location=_where(group, lines),
            evidence=(
                *count_and_time(facts, group.launches),
                Figure("computed before", group.share, FigureUnit.FRACTION),
                *((_computed_first(lines[0]),) if lines else ()),
                *group.figures(),
                *launching(facts, group.launches, most_ns),
            ),
            launches=group.launches,
        )


def _summary(group: ValueGroup, first: Frame | None) -> str:
    if first is not None:
        return f"this computes the same values as line {first.line} before it"
    times = 1 / max(1 - group.share, 1e-6)
    if group.share < 1 and times >= _MIN_TIMES:
        return f"the same values are computed {round(times)} times a step"
    return f"{group.share:.0%} of what this computes was computed before in the step"


def _computed_first(first: Frame) -> Figure:
    return Figure("computed first at", f"{first.function}, {first.line}", FigureUnit.TEXT)


def _where(group: ValueGroup, lines: tuple[Frame, Frame] | None) -> Location:
    """Return the line that calls it again, where another one calls the same first."""
    if lines is None or lines[1] == group.frames[-1]:
        return group.location
    return Location(lines[1].file, lines[1].line, lines[1].code)


def _lines_apart(facts: Facts, weighed: Weighed, group: ValueGroup) -> tuple[Frame, Frame] | None:
    """Return the line that computes the values first, and the group's, where these differ."""
    keys = np.unique(weighed.key[np.isin(weighed.launches, group.launches)])
    is_kept = np.isin(weighed.key, keys) & (weighed.part == 0)
    kept = weighed.launches[is_kept]
    if not len(kept):
        return None
    own = frames_of(facts.place(facts.longest(kept)))
    pairs = zip(own, group.frames, strict=False)
    return next(
        (pair for pair in pairs if len({(each.file, each.line) for each in pair}) > 1), None
    )


RULE = Rule(
    name="repeated_result",
    title="Values that a step computes again",
    means="Ops of a line, or of all that it calls, return tensors that are equal, bit by bit, to "
    "those that an op of the same name returned before in the step, or the gradients of such ops "
    "are, or rows of them that are equal to rows that an earlier call of the op returned there, "
    "as lengths grow or windows overlap: a quarter or more of their time is for them. Values of "
    "one step before the recording "
    "were compared on the device (`profile(values=True)`, `profiler-ext run --values`), so that "
    "this holds for that step; a recorded line and op are taken to do the same. Tensors of one "
    "value throughout do not count, nor what checkpoints compute again, nor what a rule of the "
    "program's text reports of the same launches.",
    because="Torch does not notice that it computes the same again. Keys and values of the prompt "
    "are projected in each denoising step, each layer makes the mask or the bias of positions "
    "that all layers share, weights are dequantized in each call, metrics run the model again.",
    remedy="Compute it once, before the loop or before the calls, and pass the result on; keep "
    "what depends on the weights alone in a buffer until they change. Values that are equal by "
    "chance, in one step only, have to be computed.",
    saving="Of each line and op the launches after the first part in time: those of the calls that "
    "return what is known. Their time on the critical path, with the CPU's time for launching "
    "them; of calls that return a part of known rows, that part of launches of 10 us or more. "
    "Other rules count of these launches nothing.",
    judge=_judge,
    turn=Turn.REMOVES,
)
