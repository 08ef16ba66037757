"""The rule for a first recorded step that is unlike the others."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from profiler_ext.findings.facts import CannotJudge, Facts
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit, SavingPer
from profiler_ext.findings.rule import Candidate, Rule

_MIN_STEPS = 3
_OUTLIER_RATIO = 1.5


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    walls = [step.wall_ns for step in facts.analysis.steps]
    if len(walls) < _MIN_STEPS:
        return CannotJudge(f"fewer than {_MIN_STEPS} steps were recorded")
    first, others = walls[0], walls[1:]
    if first < _OUTLIER_RATIO * max(others):
        return ()
    usual = median(others)
    number = facts.analysis.steps[0].number
    return (
        Candidate(
            summary=f"step {number}, the first that was recorded, is unlike the others",
            est_saving_ns=int((first - usual) / len(walls)),
            total_ns=int(sum(walls) / len(walls)),
            saving_per=SavingPer.WINDOW,
            confidence=Confidence.MEASURED,
            remedy=("exclude it: profiler-ext run --skip with one more, or step= of a table"),
            evidence=(
                Figure("the first step", first, FigureUnit.NS),
                Figure("the median of the others", usual, FigureUnit.NS),
                Figure("the longest of the others", max(others), FigureUnit.NS),
            ),
        ),
    )


RULE = Rule(
    name="first_step",
    title="A slow first step",
    means="The first recorded step takes at least half as long again as the longest of the others.",
    because="The profiler itself starts in it, and one-time work (recording CUDA graphs, "
    "allocating memory, choosing kernels in libraries) may not be finished when recording begins.",
    remedy="Skip more steps (`--skip`), or read the tables of a later step: `by_line(step=N)`. "
    "Training has this time once, so removing it gains nothing, but the figures mislead.",
    saving="Time of the first step beyond the median of the others, spread over the recorded "
    "steps: without it the mean is shorter by that much.",
    judge=_judge,
)
