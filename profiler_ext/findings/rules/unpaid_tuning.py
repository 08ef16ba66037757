"""The rule for autotuning that takes longer than many thousand steps can win back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit, Location, SavingPer
from profiler_ext.findings.rule import Candidate, Rule
from profiler_ext.records.compiles import Compilation, CompileKind, CompilePhase

_MIN_STEPS = 50_000
_MIN_NS = 10_000_000_000
# Tuned kernels are taken to be at most twice as fast, so that a step wins what they take at most.


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    if isinstance(facts.compiles, CannotJudge):
        return facts.compiles
    if not facts.on_device:
        return CannotJudge("the launches ran on the CPU, of which not all are known")
    tuned: dict[str, list[Compilation]] = {}
    for each in facts.compiles:
        if each.compile_id is not None and each.kind is not CompileKind.WORKER:
            tuned.setdefault(each.compile_id, []).append(each)
    total_ns = sum(each.duration_ns for of_id in tuned.values() for each in of_id)
    return tuple(_unamortized(facts, tuned, total_ns))


def _unamortized(
    facts: Facts, tuned: dict[str, list[Compilation]], total_ns: int
) -> Iterator[Candidate]:
    for compile_id, compiles in tuned.items():
        tuning_ns = sum(each.phase_ns(CompilePhase.AUTOTUNING) for each in compiles)
        if tuning_ns < _MIN_NS:
            continue
        graphs = facts.analysis.recording.graphs
        own = [at for at, graph in enumerate(graphs) if graph.compile_id == compile_id]
        rows = facts.in_steps(np.isin(facts.launches.graph.filled(-1), own))
        runs_ns = int(facts.launches.duration_ns[rows].sum()) // len(facts.analysis.steps)
        if runs_ns and tuning_ns >= _MIN_STEPS * runs_ns:
            yield _candidate(compiles, (tuning_ns, runs_ns, total_ns))


def _candidate(compiles: list[Compilation], times: tuple[int, int, int]) -> Candidate:
    tuning_ns, runs_ns, total_ns = times
    first = compiles[0]
    spent_ns = sum(each.duration_ns for each in compiles)
    return Candidate(
        summary=f"{first.function or 'a function'} was tuned for longer than many thousand steps "
        "can win back",
        est_saving_ns=tuning_ns,
        total_ns=total_ns,
        saving_per=SavingPer.PROCESS,
        confidence=Confidence.MEASURED,
        remedy=("compile this function without max-autotune; tune what most of the step is in"),
        location=Location(first.file, first.line, graph=first.compile_id),
        evidence=(
            Figure("autotuning took", tuning_ns, FigureUnit.NS),
            Figure("of a compile of", spent_ns, FigureUnit.NS),
            Figure("a step runs it for", runs_ns, FigureUnit.NS),
            Figure("steps until it pays, at least", tuning_ns // runs_ns),
        ),
    )


RULE = Rule(
    name="unpaid_tuning",
    title="Autotuning that does not pay off",
    means="Inductor spent more than ten seconds autotuning a function that takes so little of a "
    "step that it pays off only after 50,000 steps or more, even if the chosen kernels are twice "
    "as fast as the default.",
    because="`max-autotune` takes as long for code that a step hardly runs as for code that it "
    "runs all the time: it tries each product of other sizes again.",
    remedy="Use `max-autotune` for the code that takes most of a step, and compile the rest "
    "without it. With torch's caches the next process need not tune again.",
    saving="Time spent on autotuning in this process: once for each process that does not find it "
    "in a cache, not per step. All device time of the function's graphs counts as its share of a "
    "step, so fewer steps cannot pay. Code that ran in no recorded step is not judged; nor is a "
    "compile without autotuning, because the time of a step without it is unknown.",
    judge=_judge,
)
