"""Owns the rule of functions that are compiled more than once, as a guard failed."""

from __future__ import annotations

from collections.abc import Iterable

from profiler_ext.findings.facts import Facts, CannotJudge
from profiler_ext.findings.finding import Figure, FigureUnit, Stake, Confidence, Location
from profiler_ext.findings.guards import expected_guard_kind, guard_remedy
from profiler_ext.findings.rule import Candidate, Rule
from profiler_ext.records import Compilation, CompileKind


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    compiles = facts.compiles
    if isinstance(compiles, CannotJudge):
        return compiles
    functions: dict[tuple[str | None, str | None, int | None], list[Compilation]] = {}
    for each in compiles:
        if each.recompiles and each.kind is not CompileKind.WORKER:
            key = (each.function, each.file, each.line)
            functions.setdefault(key, []).append(each)
    total = sum(each.duration_ns for each in compiles if each.kind is not CompileKind.WORKER)
    counted = map(_without_expected, functions.values())
    return tuple(_candidate(of_function, total) for of_function in counted if of_function)


def _without_expected(compiles: list[Compilation]) -> list[Compilation]:
    """Leave out the first of each kind that training and evaluation make necessary."""
    kinds = [expected_guard_kind(each.recompiles[0].guard) for each in compiles]
    return [each for at, each in enumerate(compiles) if not kinds[at] or kinds[at] in kinds[:at]]


def _candidate(compiles: list[Compilation], total_ns: int) -> Candidate:
    last = compiles[-1]
    failed = last.recompiles[0]
    spent_ns = sum(each.duration_ns for each in compiles)
    frame = failed.stack[-1] if failed.stack else None
    where = (
        Location(last.file, last.line) if frame is None else Location(frame.file, frame.line, frame.code)
    )
    return Candidate(
        what=f"{last.function or 'a function'} was compiled again, as a guard failed",
        at_stake_ns=spent_ns,
        of_ns=total_ns,
        stake=Stake.PROCESS,
        sureness=Confidence.UPPER_BOUND,
        remedy=guard_remedy(failed.guard),
        where=where,
        why=(
            Figure("compiled once more", len(compiles)),
            Figure("in", spent_ns, FigureUnit.NS),
            Figure("the guard that failed", failed.guard, FigureUnit.TEXT),
            Figure("compiled before as", failed.of, FigureUnit.TEXT),
        ),
    )


RULE = Rule(
    name="recompilation",
    title="A function that is compiled more than once",
    means="A function had been compiled, and was compiled again, as a guard of the first code "
    "failed. The finding has the guard, as torch writes it, and the line that made it necessary "
    "where torch tells.",
    because="Dynamo specialises code for what it saw: sizes, Python numbers, flags. After a few "
    "failures it gives up, and the function runs eagerly.",
    remedy="Sizes that change can be marked (`mark_dynamic`, `dynamic=True`) or padded to few; a "
    "Python number that changes can be a tensor. Strides, dtypes, and whether a gradient is "
    "wanted, can be the same in each call. One code for training and one for evaluation are right: "
    "of that nothing is said.",
    stake="The time that the further compiles took in this process: for each process once, and not "
    "for each step. It is an upper bound, as dynamic code takes longer to compile.",
    judge=_judge,
)
