"""The rule for eager ops, one kernel each, next to compiled code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np

from profiler_ext.findings import finding, rule
from profiler_ext.findings.facts import (
    FUSED_AWAY,
    CannotJudge,
    Facts,
    eager_kernels,
    is_of_complex,
    launches_by_function,
    launches_by_line,
    location_of,
)
from profiler_ext.findings.groups import Kind, LaunchGroup
from profiler_ext.findings.launch_groups import candidates_of
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Scope

_MIN_LAUNCHES = 3
_MUCH_COMPILED = 0.25  # of a step; with less the rest is not beside compiled code
_MIN_STEP_FRACTION = 0.03
_MAX_APART = 3  # more findings of lines would hide what else is found
_REMEDY = (
    "torch.compile a function that runs the model and the loss, so that these lines are fused too"
)


def _judge(facts: Facts) -> Iterable[rule.Candidate] | CannotJudge:
    late = candidates_of(facts, Kind.EAGER, lambda group: (_late(facts, group), _REMEDY))
    if not is_partly_compiled(facts) or isinstance(late, CannotJudge):
        return late
    late = (*late, *_complex(facts))
    lines = [
        own for own in launches_by_line(facts, eager_kernels(facts)) if _is_significant(facts, own)
    ]
    lines.sort(key=lambda own: -facts.median_per_step(own, facts.critical_ns(own)))
    # What is small stands with the largest, at whose line it says the same
    parts = [[*lines[:1], *lines[_MAX_APART:]], *([own] for own in lines[1:_MAX_APART])]
    return (*(_candidate(facts, own) for own in parts if own), *late)


def is_partly_compiled(facts: Facts) -> bool:
    """Tell whether at least a quarter of the usual step runs in compiled graphs."""
    compiled = np.flatnonzero(facts.in_steps(facts.launches.scope.where(Scope.COMPILED)))
    compiled_ns = facts.median_per_step(compiled, facts.launches.duration_ns[compiled])
    return compiled_ns > 0 and compiled_ns >= _MUCH_COMPILED * facts.step_ns


def _complex(facts: Facts) -> Iterator[rule.Candidate]:
    """Yield the functions that compute with complex numbers in compiled graphs."""
    is_complex = facts.named(is_of_complex) & facts.launches.scope.where(Scope.COMPILED)
    chosen = np.flatnonzero(facts.in_steps(is_complex & (facts.main_place >= 0)))
    of_compiled = facts.in_steps(facts.launches.scope.where(Scope.COMPILED))
    for function, called in launches_by_function(facts, chosen):
        own = np.flatnonzero(of_compiled & facts.mainly(partial(_is_in, function)))
        # One kernel would be left of what reads, multiplies and writes, at most a third
        fused_ns = facts.median_per_step(own, facts.critical_ns(own, FUSED_AWAY))
        yield rule.Candidate(
            summary="complex numbers run as eager kernels within compiled graphs",
            est_saving_ns=max(fused_ns, facts.removed_per_step_ns(called)),
            confidence=finding.Confidence.ESTIMATED,
            remedy="compute with real and imaginary parts (cos and sin), which are fused",
            location=location_of(facts.place(facts.longest(called))),
            evidence=(
                finding.Figure("kernels of complex numbers", facts.launches_per_step(called)),
                *rule.count_and_time(facts, own),
            ),
            launches=own,
        )


def _is_in(function: tuple[str | None, str | None], place: Place) -> bool:
    return (place.file, place.function) == function


def _late(facts: Facts, group: LaunchGroup) -> str:
    launches = facts.launches_per_step(group.launches)
    return f"eager ops next to compiled graphs ({launches:,} launches)"


def _is_significant(facts: Facts, launches: Ints) -> bool:
    critical_ns = facts.median_per_step(launches, facts.critical_ns(launches))
    is_many = facts.launches_per_step(launches) >= _MIN_LAUNCHES
    return is_many and critical_ns >= _MIN_STEP_FRACTION * facts.step_ns


def _candidate(facts: Facts, lines: list[Ints]) -> rule.Candidate:
    launches = np.sort(np.concatenate(lines))
    longest = facts.longest(launches)
    return rule.Candidate(
        summary="unfused eager ops next to compiled graphs",
        est_saving_ns=facts.median_per_step(launches, facts.critical_ns(launches, FUSED_AWAY)),
        confidence=finding.Confidence.ESTIMATED,
        remedy=_REMEDY,
        location=location_of(facts.place(longest)),
        evidence=(*rule.count_and_time(facts, launches), finding.Figure("lines", len(lines))),
        launches=launches,
    )


RULE = rule.Rule(
    name="eager_beside_compiled",
    title="Eager ops outside compiled graphs",
    means="At least a quarter of a step runs in compiled graphs, and outside of them three or "
    "more of torch's own kernels of one line, forward and backward, are on the critical path for "
    "3% of the step; the three largest lines have a finding each. Or 16 or more of these kernels "
    "are not, and the step waits for their launches. Or a compiled graph itself calls eager "
    "kernels, for complex numbers.",
    because="An eager op reads its operands from memory and writes its result there for the next "
    "op to read. Compiled, a chain of them becomes one kernel that reads and writes once. Most "
    "often it is the loss, because logits have one value for each token and word. The compiler "
    "generates no code for complex numbers: rotary embeddings by `view_as_complex` split a graph's "
    "kernels in three.",
    remedy="One `torch.compile` of a function that calls the model and computes the loss, or of "
    "the loss alone. In place of complex numbers, products with cosines and sines.",
    saving="Two thirds of the time of these launches on the critical path: a cross entropy of "
    "bfloat16 logits in float32 moves 36 bytes per logit eagerly, forward and backward, and 8 to "
    "12 fused; longer chains gain more. Matrix products, attention and the optimizer are not "
    "included. Of launches that the step waits for: how much shorter it would be in a replay that "
    "leaves 15% of the CPU's time for them and a third of the device's. Of complex numbers two "
    "thirds of the time of their function's kernels, or a replay without the eager ones.",
    not_on_cpu=rule.ON_CPU,
    judge=_judge,
)
