"""The rule for steps in which torch compiles."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median_low

from profiler_ext.findings.facts import CannotJudge, Facts
from profiler_ext.findings.finding import (
    NOWHERE,
    Confidence,
    Figure,
    FigureUnit,
    Location,
    SavingPer,
)
from profiler_ext.findings.rule import Candidate, Rule
from profiler_ext.records.analysis import Step
from profiler_ext.records.compiles import Compilation, CompileKind

_MIN_STEPS = 3
_LATER = "skip more steps (--skip) until nothing compiles any more"
_STEADY = (
    "keep constant what the failing guard compares (see `recompilation`), or make its sizes dynamic"
)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    compiles = facts.compiles
    if isinstance(compiles, CannotJudge):
        return compiles
    on_this_process = [each for each in compiles if each.kind is not CompileKind.WORKER]
    spent = [_within(on_this_process, step) for step in facts.analysis.steps]
    if not any(spent):
        return ()
    is_steady = len(spent) >= _MIN_STEPS and median_low(spent) > 0
    in_steps = [
        each for each in on_this_process if any(_overlap(each, s) for s in facts.analysis.steps)
    ]
    longest = max(in_steps, key=lambda each: each.duration_ns)
    return (
        Candidate(
            summary="torch compiles in every step"
            if is_steady
            else "torch compiled during the recorded steps",
            est_saving_ns=median_low(spent) if is_steady else sum(spent) // len(spent),
            total_ns=None
            if is_steady
            else (sum(step.wall_ns for step in facts.analysis.steps) // len(facts.analysis.steps)),
            saving_per=SavingPer.STEP if is_steady else SavingPer.WINDOW,
            confidence=Confidence.MEASURED,
            remedy=_STEADY if is_steady else _LATER,
            location=_where(longest),
            evidence=(
                Figure("compiles in these steps", len(in_steps)),
                Figure("they take", sum(spent), FigureUnit.NS),
                Figure("steps with some", sum(each > 0 for each in spent)),
                Figure("longest in", _phase(longest), FigureUnit.TEXT),
            ),
        ),
    )


def _within(compiles: list[Compilation], step: Step) -> int:
    """Return the compile time within a step; nested compiles count once."""
    spent, reached = 0, step.cpu_start_ns
    for each in sorted(compiles, key=lambda one: one.started_ns):
        started = max(each.started_ns, reached)
        ended = min(each.started_ns + each.duration_ns, step.cpu_end_ns)
        spent += max(ended - started, 0)
        reached = max(reached, ended)
    return spent


def _overlap(compiled: Compilation, step: Step) -> bool:
    ended = compiled.started_ns + compiled.duration_ns
    return compiled.started_ns < step.cpu_end_ns and ended > step.cpu_start_ns


def _where(compiled: Compilation) -> Location:
    if compiled.file is None:
        return NOWHERE if compiled.compile_id is None else Location(graph=compiled.compile_id)
    return Location(compiled.file, compiled.line, graph=compiled.compile_id)


def _phase(compiled: Compilation) -> str:
    longest = max(compiled.times, key=lambda each: each.duration_ns, default=None)
    return "nothing that torch timed" if longest is None else longest.phase.label


RULE = Rule(
    name="compiling",
    title="Compile time within the recorded steps",
    means="torch compiled something while the steps were recorded: a function for the first time "
    "or again, a backward at its first run, kernels that are tuned, CUDA graphs that are recorded.",
    because="Recording began before everything was compiled; or a guard fails in each step, so "
    "that compiling never ends.",
    remedy="Skip more steps. If each step compiles, look for the guard: `compiles()` has each "
    "compilation with its reason.",
    saving="If each step compiles, the time that the usual step spends on it. Otherwise the time "
    "that the recorded steps spend on it, spread over them: training has it only once, so the "
    "figures mislead.",
    judge=_judge,
)
