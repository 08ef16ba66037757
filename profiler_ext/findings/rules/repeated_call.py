"""The rule for a network that a step runs again on the same input."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.code_of_lines import equal_calls
from profiler_ext.findings.facts import CannotJudge, Facts
from profiler_ext.findings.finding import Confidence, Figure, Location
from profiler_ext.findings.lines_of_functions import draws, functions_of, launches_under
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, Turn, count_and_time
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase

_PRODUCES = re.compile(r"\b(?:add|b|badd)?b?mm\b|convolution|attention")
_TO_DEVICE = "Memcpy HtoD"
_BEHIND = (Phase.BACKWARD, Phase.RECOMPUTE)
_ALIKE = 0.8
_FOR_METRICS = "take the outputs of the training step (detach()), or do it every hundredth step"
_ONCE = "call it once and use its result at both lines"


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    return tuple(_candidates(facts))


def _candidates(facts: Facts) -> Iterator[Candidate]:
    counted: set[int] = set()
    for function, codes in functions_of(facts).items():
        for text, lines in equal_calls(codes):
            every = {line: launches_under(facts, function, line) for line in lines}
            every = {line: own for line, own in every.items() if facts.launches_per_step(own)}
            again = _again(facts, every) if len(every) > 1 else None
            if again is None or counted & set(every[again].tolist()):
                continue
            counted |= set(every[again].tolist())
            where = Location(function[0], again, codes[again])
            other = next(line for line in every if line != again)
            yield _candidate(facts, where, every[again], text, other)


def _again(facts: Facts, every: dict[int, Ints]) -> int | None:
    """Return the line whose call the step does not need, if there is one."""
    if not _is_alike(facts, [*every.values()]):
        return None
    phase, own = facts.launches.phase, np.concatenate([*every.values()])
    if sum(map(len, every.values())) > len(np.unique(own)):  # one line calls another
        return None
    learning = [line for line, rows in every.items() if phase.where(*_BEHIND)[rows].any()]
    only_read = [line for line in every if line not in learning]
    if learning and only_read:  # its values are those of the other, but for what is drawn
        return only_read[0]
    is_drawn = draws(facts)[own].any()
    return None if is_drawn or _is_updated_between(facts, every) else max(every)


def _is_alike(facts: Facts, every: list[Ints]) -> bool:
    """Tell whether all lines run the same products, of what is on the device."""
    is_product = facts.of_op(lambda op: _PRODUCES.search(op) is not None)
    is_product &= ~facts.launches.phase.where(*_BEHIND)
    codes, is_copy = facts.launches.name.codes, facts.named(lambda name: _TO_DEVICE in name)
    counted = [Counter(codes[own[is_product[own]]].tolist()) for own in every]
    least, most = counted[0], counted[0]
    for each in counted[1:]:
        least, most = least & each, most | each
    is_given = any(is_copy[own].any() for own in every)
    return not is_given and least.total() >= _ALIKE * most.total() > 0


def _is_updated_between(facts: Facts, every: dict[int, Ints]) -> bool:
    """Tell whether an optimizer runs between the forwards of these calls in a step."""
    launches = facts.launches
    updates = launches.start_ns[facts.in_steps(launches.phase.where(Phase.OPTIMIZER))]
    is_behind = launches.phase.where(*_BEHIND, Phase.GRADIENT_ACCUMULATION)
    begins, ends = [], []
    for step in facts.analysis.steps:
        of_step = launches.step.filled(-1) == step.number
        forward = [own[of_step[own] & ~is_behind[own]] for own in every.values()]
        starts_ns = [launches.start_ns[own].min() for own in forward if len(own)]
        begins.append(min(starts_ns, default=0))
        ends.append(max(starts_ns, default=0))
    bounds = zip(begins, ends, strict=True)
    return any(((updates > begin) & (updates < end)).any() for begin, end in bounds)


def _candidate(facts: Facts, where: Location, launches: Ints, text: str, other: int) -> Candidate:
    is_learning = facts.launches.phase.where(*_BEHIND)[launches].any()
    learns = facts.launches.phase.where(*_BEHIND).any()
    return Candidate(
        summary=f"{text} is computed again, with the same arguments as at line {other}",
        est_saving_ns=facts.removed_per_step_ns(launches),
        confidence=Confidence.ESTIMATED,
        remedy=_FOR_METRICS if learns and not is_learning else _ONCE,
        location=where,
        evidence=(*count_and_time(facts, launches), Figure("the other line", other)),
        launches=launches,
    )


RULE = Rule(
    name="repeated_call",
    title="A network that a step runs again on the same input",
    means="Two lines of a function call the same with the same arguments, by their text, and both "
    "run the same products or convolutions. Nothing between them assigns the arguments or changes "
    "them in place. Either one of the calls has no backward (a forward for metrics), or both have "
    "one or none, nothing in them is drawn at random, and no optimizer runs between them.",
    because="Torch does not notice that it computes the same again. Metrics, logs and a second "
    "loss often call the model by themselves.",
    remedy="Keep the outputs of the first call and use them twice; `outputs.detach()` for metrics. "
    "Those of a training step are computed before its update, with dropout and the statistics of "
    "the batch, which a metric of training can take, or be computed every hundredth step.",
    saving="All launches of one of the calls, with its backward if both have one; where the CPU is "
    "behind, how much shorter the step is in a replay without them. Other rules count of these "
    "launches nothing.",
    not_on_cpu=ON_CPU,
    judge=_judge,
    turn=Turn.REMOVES,
)
