"""The rule for unfused eager kernels in a step without compiled code."""

from __future__ import annotations

from collections.abc import Iterable

from profiler_ext.findings import finding, rule
from profiler_ext.findings.facts import (
    FUSION_SAVING,
    CannotJudge,
    Facts,
    eager_kernels,
    is_partly_compiled,
    launches_by_line,
    location_of,
)
from profiler_ext.records.events import Ints

_MIN_STEP_FRACTION = 0.1
_FILLED = 0.9  # A step whose device idles for more is that of the rule of launch-bound ones


def _judge(facts: Facts) -> Iterable[rule.Candidate] | CannotJudge:
    if not facts.on_device:
        return CannotJudge("the launches ran on the CPU")
    if is_partly_compiled(facts):
        return ()
    launches = eager_kernels(facts)
    # How long the usual step waits for launches: for all, if a device is hardly idle.
    training = facts.training
    is_filled = training.is_known and facts.busy_ns >= _FILLED * training.step_ns
    all_ns = facts.launches.duration_ns[launches]
    critical_ns = facts.median_per_step(
        launches, all_ns if is_filled else facts.critical_ns(launches)
    )
    if not critical_ns or critical_ns < _MIN_STEP_FRACTION * facts.training.step_ns:
        return ()
    return (_candidate(facts, launches, critical_ns),)


def _candidate(facts: Facts, launches: Ints, critical_ns: int) -> rule.Candidate:
    return rule.Candidate(
        summary="unfused eager kernels",
        est_saving_ns=int(FUSION_SAVING * critical_ns),
        confidence=finding.Confidence.ESTIMATED,
        remedy=(
            "torch.compile the model with the loss, to fuse the pointwise ops between the matmuls"
        ),
        location=location_of(facts.place(facts.longest(launches))),
        evidence=(
            *rule.count_and_time(facts, launches),
            finding.Figure("that sets the pace", critical_ns, finding.FigureUnit.NS),
            finding.Figure("lines", sum(1 for _ in launches_by_line(facts, launches))),
        ),
        launches=launches,
    )


RULE = rule.Rule(
    name="uncompiled",
    title="Unfused eager kernels",
    means="Less than a quarter of a step runs in compiled graphs, and torch's own kernels of "
    "eager ops, forward and backward, are on the critical path for a tenth of it or more.",
    because="An eager op reads its operands from memory and writes its result there for the next "
    "op to read. Compiled, the pointwise ops between two matrix products become one kernel that "
    "reads and writes once.",
    remedy="`torch.compile` of the model, or better of a function that calls it and computes the "
    "loss.",
    saving="Three fifths of the time of these kernels on the critical path: norms, activations, "
    "residuals, casts and losses. Matrix products, convolutions, attention and the optimizer are "
    "not included.",
    judge=_judge,
    takes_rest=True,
)
