"""The rule for steps in which torch compiles."""

from __future__ import annotations

from collections import defaultdict
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
from profiler_ext.records.compiles import Compilation, CompileKind, CompilePhase

_MIN_STEPS = 3
_LATER = "skip more steps (--skip) until nothing compiles any more"
_MIN_RECORDINGS = 3  # torch may record twice, as what a graph is given first changes its place
_ONE_CACHE = (
    "one cache of keys and values for all prompts, reset in between (transformers: a StaticCache "
    "as past_key_values), as a graph that is replayed reads fixed addresses"
)
_STEADY = (
    "keep constant what the failing guard compares (see `recompilation`), or make its sizes dynamic"
)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    compiles = facts.compiles
    if isinstance(compiles, CannotJudge):
        return compiles
    on_this_process = [each for each in compiles if each.kind is not CompileKind.WORKER]
    return (*_in_steps(facts, on_this_process), *_recorded_again(facts, on_this_process))


def _in_steps(facts: Facts, on_this_process: list[Compilation]) -> Iterable[Candidate]:
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


def _recorded_again(facts: Facts, compiles: list[Compilation]) -> Iterable[Candidate]:
    """Judge CUDA graphs of a decode step that are recorded again, though no size has changed."""
    kind = facts.kind_of_steps
    if kind is None or not facts.is_decoding or kind.batch[0] != kind.batch[1]:
        return
    recordings: dict[str | None, list[int]] = defaultdict(list)
    for each in compiles:
        took_ns = each.phase_ns(CompilePhase.CUDA_GRAPHS)
        if each.kind is CompileKind.RUN_TIME and took_ns:
            recordings[each.compile_id].append(took_ns)
    for graph, times in recordings.items():
        if graph is not None and len(times) >= _MIN_RECORDINGS:
            yield Candidate(
                summary="a CUDA graph is recorded again and again",
                est_saving_ns=sum(times[1:]),
                saving_per=SavingPer.PROCESS,
                total_ns=sum(each.duration_ns for each in compiles),
                confidence=Confidence.MEASURED,
                remedy=_ONE_CACHE,
                location=Location(graph=graph),
                evidence=(
                    Figure("recordings", len(times)),
                    Figure("the usual one takes", median_low(times), FigureUnit.NS),
                    Figure("a token takes", facts.training.step_ns, FigureUnit.NS),
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
    "or again, a backward at its first run, kernels that are tuned, CUDA graphs that are recorded. "
    "Or the process recorded the CUDA graph of a decode step three times or more at one batch "
    "size.",
    because="Recording began before everything was compiled; or a guard fails in each step, so "
    "that compiling never ends. A CUDA graph is recorded again where its inputs have other "
    "addresses, as a new static cache for each prompt has.",
    remedy="Skip more steps. If each step compiles, look for the guard: `compiles()` has each "
    "compilation with its reason.",
    saving="If each step compiles, the time that the usual step spends on it. Otherwise the time "
    "that the recorded steps spend on it, spread over them: training has it only once, so the "
    "figures mislead. Of CUDA graphs that are recorded again, the time of all recordings but the "
    "first, of the process's compile time.",
    judge=_judge,
)
