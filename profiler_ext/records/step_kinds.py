"""Kinds of steps of inference: prefill, decode, speculative rounds, whole sequences.

A kind is known by the shapes of what a model was given, ``Settings.step_calls``. Steps of one kind
are compared and averaged, never those of several.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from profiler_ext.errors import UsageError
from profiler_ext.records.analysis import Analysis, Step
from profiler_ext.records.recording import StepCall, StepCalls
from profiler_ext.records.vocabulary import StepKind

_MAX_EXTRA_TOKENS = 2
"""A draft model may run over the last token and one that was not its own."""
_GENERATING = (StepKind.DECODE, StepKind.SPECULATIVE)


def is_prompt(length: int, calls_before: int) -> bool:
    """Tell whether so many tokens are more than what so many calls before may have drafted."""
    return length > calls_before + _MAX_EXTRA_TOKENS


def is_verification(length: int, drafts: int) -> bool:
    """Tell whether a call has the tokens of so many calls before it, and one more, or nearly."""
    return drafts > 0 and length > 1 and abs(length - 1 - drafts) <= 1


def kind_of(calls: Sequence[StepCall]) -> StepKind:
    """Return the kind of a step with these calls, in a program that generates token by token."""
    longest = max((each.length for each in calls), default=0)
    if longest <= 1:
        return StepKind.DECODE if longest else StepKind.BETWEEN
    is_round = calls[-1].length == longest and is_verification(longest, len(calls) - 1)
    return StepKind.SPECULATIVE if is_round else StepKind.PREFILL


@dataclass(frozen=True, slots=True)
class KindOfSteps:
    """The steps of one kind."""

    kind: StepKind
    steps: tuple[Step, ...]  # that were recorded
    of_steps: tuple[StepCalls, ...]  # of each step that was recorded or timed

    @property
    def calls(self) -> tuple[tuple[StepCall, ...], ...]:
        """The calls of each step that was recorded or timed."""
        return tuple(each.calls for each in self.of_steps)

    @property
    def unprofiled_ns(self) -> tuple[int, ...]:
        """The times of the steps before the recording."""
        times = (each.unprofiled_ns for each in self.of_steps)
        return tuple(each for each in times if each is not None)

    @property
    def last_calls(self) -> tuple[tuple[int, StepCall | None], ...]:
        """The numbers of the recorded steps, each with the call that ended it."""
        recorded = ((each.step, each.calls) for each in self.of_steps)
        return tuple((n, calls[-1] if calls else None) for n, calls in recorded if n is not None)

    @property
    def batch(self) -> tuple[int, int]:
        """The fewest and the most sequences of a call that ends a step."""
        return _range(calls[-1].batch for calls in self.calls if calls)

    @property
    def length(self) -> tuple[int, int]:
        """The fewest and the most tokens of a sequence in a call that ends a step."""
        return _range(calls[-1].length for calls in self.calls if calls)

    @property
    def context(self) -> tuple[int, int] | None:
        """The fewest and the most tokens so far, where a mask has them."""
        known = [calls[-1].context for calls in self.calls if calls]
        every = [each for each in known if each is not None]
        return _range(every) if every and len(every) == len(known) else None

    @property
    def accepted(self) -> float | None:
        """The tokens of a sequence that a round adds: their mean, where a mask shows them."""
        known = [(calls[-1].context, calls[-1].length) for calls in self.calls if calls]
        pairs = ((a[0], b[0], b[1]) for a, b in pairwise(known))
        added = [now - last for last, now, most in pairs if last and now and 0 < now - last <= most]
        return float(np.mean(added)) if added else None

    @property
    def tokens(self) -> float:
        """The tokens that a step computes, padding included: their mean; of a round, verified."""
        return float(np.mean([c[-1].batch * c[-1].length for c in self.calls if c] or [0]))


def _range(numbers: Iterable[int]) -> tuple[int, int]:
    every = [*numbers]
    return (min(every), max(every)) if every else (0, 0)


def kinds_of_steps(analysis: Analysis) -> tuple[KindOfSteps, ...]:
    """Return the kinds of steps of inference, the usual one first.

    None where no call had tokens.
    """
    # A step that was recorded for another reason is not among the analysis's
    numbers = {None, *(each.number for each in analysis.steps)}
    known = [each for each in analysis.recording.settings.step_calls if each.step in numbers]
    own: dict[StepKind, list[StepCalls]] = {}
    for kind, each in _named(known):
        own.setdefault(kind, []).append(each)
    kinds = [_of_kind(analysis, kind, steps) for kind, steps in own.items()]
    return tuple(sorted(kinds, key=_order))


def _order(own: KindOfSteps) -> tuple[bool, int, str]:
    """Order kinds: what generates tokens first, as a program spends its time there."""
    return not (own.steps and own.kind in _GENERATING), -len(own.steps), own.kind.value


def _named(steps: Sequence[StepCalls]) -> Iterator[tuple[StepKind, StepCalls]]:
    kinds = [kind_of(each.calls) for each in steps]
    generates = any(kind in _GENERATING for kind in kinds)
    for kind, each in zip(kinds, steps, strict=True):
        is_whole = kind is StepKind.PREFILL and not generates
        yield StepKind.SEQUENCES if is_whole else kind, each


def _of_kind(analysis: Analysis, kind: StepKind, own: Sequence[StepCalls]) -> KindOfSteps:
    numbers = {each.step for each in own}
    return KindOfSteps(
        kind,
        tuple(step for step in analysis.steps if step.number in numbers),
        tuple(own),
    )


def of_usual_kind(analysis: Analysis) -> Analysis:
    """Return an analysis of the kind of steps that most are of; itself where there is one kind."""
    kinds = kinds_of_steps(analysis)
    return of_kind(analysis, kinds[0].kind) if kinds and kinds[0].steps else analysis


def of_kind(analysis: Analysis, kind: StepKind) -> Analysis:
    """Return an analysis of the steps of one kind; what ran in others belongs to no step.

    Raises:
        UsageError: No step of that kind was recorded.
    """
    kinds = {each.kind: each for each in kinds_of_steps(analysis) if each.steps}
    if kind not in kinds:
        listed = ", ".join(kinds) or "none: the tokens of its steps are not known"
        raise UsageError(f"no step of kind {kind!r} was recorded; ask for one of {listed}")
    own = kinds[kind]
    timed_ns = analysis.recording.settings.unprofiled_steps_ns  # of what most steps were
    if len(own.steps) == len(analysis.steps) and timed_ns == own.unprofiled_ns:
        return analysis
    return analysis.derived.once(("kind", kind), lambda: _of_steps(analysis, own))


def _of_steps(analysis: Analysis, own: KindOfSteps) -> Analysis:
    numbers = {each.number for each in own.steps}
    launches, idle, recording = analysis.launches, analysis.idle, analysis.recording
    outside = ~np.isin(launches.step.filled(-1), [*numbers])
    settings = replace(
        recording.settings, unprofiled_steps_ns=own.unprofiled_ns, unprofiled_cpu_ns=None
    )
    return replace(
        analysis,
        recording=replace(recording, settings=settings),
        steps=own.steps,
        launches=replace(launches, step=np.ma.MaskedArray(launches.step.data, outside)),
        idle=idle.of_rows(np.isin(idle.step, [*numbers])),
        breakdown=tuple(row for row in analysis.breakdown if row.step in numbers),
    )
