"""The rule for recompilations, with a remedy for each kind of failed guard."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from profiler_ext.findings.facts import CannotJudge, Facts
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit, Location, SavingPer
from profiler_ext.findings.rule import Candidate, Rule
from profiler_ext.records.compiles import Compilation, CompileKind

SIZES: Final = (
    "say that the size changes: mark_dynamic for that input, or torch.compile(dynamic=True); or "
    "pad batches to few sizes"
)
LAYOUT: Final = (
    "pass the input in one layout: .contiguous() before the call, or one memory_format for all"
)
TENSOR: Final = (
    "pass an input of the same kind in each call: one dtype, as many dimensions, one device"
)
GRADIENTS: Final = (
    "let inputs require gradients in each call or in none, and make them under one of no_grad() "
    "and inference_mode(): code with gradients is compiled apart from code without, so one of "
    "each is right"
)
TRAINING: Final = (
    "evaluate the uncompiled model, if compiling twice costs too much: code for train() and code "
    "for eval() are compiled apart, so one of each is right"
)
# What may fail once where a program trains and evaluates, or calls equal blocks one after another,
# of which the first has an input that requires no gradient
_ONE_OF_EACH: Final = (
    r"requires_grad mismatch",
    r"dispatch key set mismatch",
    r"changed: grad_mode",
    r"\.training == ",
)
BACKEND: Final = "call torch.compile once for each function, and keep what it returns"
STATE: Final = (
    "call it in one state (autocast, determinism, number of threads), the same in each call"
)
VALUES: Final = (
    "keep what the guard compares constant: pass it as a tensor, or take it out of the model"
)
# The first one that a guard contains applies
_REMEDIES: Final = (
    (r"stride mismatch", LAYOUT),
    (r"(?:dtype|rank|device index) mismatch", TENSOR),
    (r"requires_grad mismatch|dispatch key set mismatch|changed: grad_mode", GRADIENTS),
    (r"GLOBAL_STATE changed", STATE),
    (r"BACKEND_MATCH", BACKEND),
    (r"\.training == ", TRAINING),
    (r"size mismatch|\bsize\b|\.shape", SIZES),
)


def expected_guard_kind(guard: str) -> str | None:
    """Return a guard's kind, if one failure of that kind is expected."""
    return next((kind for kind in _ONE_OF_EACH if re.search(kind, guard)), None)


def guard_remedy(guard: str) -> str:
    """Return what to try so that a guard does not fail again."""
    return next((remedy for text, remedy in _REMEDIES if re.search(text, guard)), VALUES)


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
    """Leave out the first of each kind, which training and evaluation need."""
    kinds = [expected_guard_kind(each.recompiles[0].guard) for each in compiles]
    return [each for at, each in enumerate(compiles) if not kinds[at] or kinds[at] in kinds[:at]]


def _candidate(compiles: list[Compilation], total_ns: int) -> Candidate:
    last = compiles[-1]
    failed = last.recompiles[0]
    spent_ns = sum(each.duration_ns for each in compiles)
    frame = failed.stack[-1] if failed.stack else None
    where = (
        Location(last.file, last.line)
        if frame is None
        else Location(frame.file, frame.line, frame.code)
    )
    return Candidate(
        summary=f"{last.function or 'a function'} was compiled again, as a guard failed",
        est_saving_ns=spent_ns,
        total_ns=total_ns,
        saving_per=SavingPer.PROCESS,
        confidence=Confidence.UPPER_BOUND,
        remedy=guard_remedy(failed.guard),
        location=where,
        evidence=(
            Figure("compiled once more", len(compiles)),
            Figure("in", spent_ns, FigureUnit.NS),
            Figure("the guard that failed", failed.guard, FigureUnit.TEXT),
            Figure("compiled before as", failed.compile_id, FigureUnit.TEXT),
        ),
    )


RULE = Rule(
    name="recompilation",
    title="A recompiled function",
    means="A compiled function was compiled again because a guard of the first code failed. The "
    "finding has the guard, as torch prints it, and the line behind it if torch reports one.",
    because="Dynamo specialises code for what it saw: sizes, Python numbers, flags. After a few "
    "failures it gives up, and the function runs eagerly.",
    remedy="Mark changing sizes (`mark_dynamic`, `dynamic=True`) or pad them to few; make a "
    "changing Python number a tensor. Keep strides, dtypes and `requires_grad` the same in each "
    "call. Separate code for training and evaluation is right, and not reported.",
    saving="Time of the further compiles in this process: once per process, not per step. An upper "
    "bound, because dynamic code takes longer to compile.",
    judge=_judge,
)
