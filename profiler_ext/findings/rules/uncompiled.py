"""The rule for unfused eager kernels in a step without compiled code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings import finding, rule
from profiler_ext.findings.facts import (
    FUSED_AWAY,
    FUSION_SAVING,
    CannotJudge,
    Facts,
    Rows,
    eager_kernels,
    launches_by_line,
    location_of,
)
from profiler_ext.findings.rules.eager_beside_compiled import is_partly_compiled
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase

_Function = tuple[str | None, str | None, int | None]  # file, name and a line
_MAX_GAP = 8  # lines without a launch within a function
_MIN_STEP_FRACTION = 0.1
# A function whose kernels in a row lose so much of the step has a finding of its own
_MIN_CHAIN_FRACTION = 0.05
_MAX_APART = 3  # more of them would hide what else is found
_LOSS = re.compile(r"log_softmax|nll_loss")
_COPIES = "Memcpy DtoD (Device -> Device)"
_COMPILE = "torch.compile the model with the loss, to fuse the pointwise ops between the matmuls"
_COMPILE_FUNCTION = (
    "torch.compile the function, with the loss if it computes it; or torch's own op where one does "
    "the same (F.gelu, F.layer_norm, F.rms_norm)"
)


def _judge(facts: Facts) -> Iterable[rule.Candidate] | CannotJudge:
    if is_partly_compiled(facts):
        return ()
    launches = eager_kernels(facts)
    paced_ns = facts.paced_ns(np.arange(len(facts.launches)))
    critical_ns = facts.median_per_step(launches, paced_ns[launches])
    if not critical_ns or critical_ns < _MIN_STEP_FRACTION * facts.training.step_ns:
        return ()
    chains = list(_chains(facts, launches, paced_ns))
    rest = np.setdiff1d(launches, np.concatenate([rule.NO_ROWS, *(own for own, _ in chains)]))
    apart = list(_apart(facts, rest, paced_ns))
    rest = np.setdiff1d(rest, np.concatenate([rule.NO_ROWS, *(own for own, _ in apart)]))
    rest_ns = facts.median_per_step(rest, paced_ns[rest])
    result = [_candidate(facts, own, saved, _COMPILE_FUNCTION) for own, saved in chains]
    result += [_candidate(facts, own, saved, _COMPILE) for own, saved in apart]
    if len(rest):
        saved = (int(FUSION_SAVING * rest_ns), rest_ns)
        result.append(_candidate(facts, rest, saved, _COMPILE))
    return result


def _chains(facts: Facts, launches: Ints, paced_ns: Ints) -> Iterator[tuple[Ints, tuple[int, int]]]:
    """Yield launches of functions that run many in a row: what fusing saves, and what they take."""
    functions: dict[_Function, list[int]] = {}
    saved_ns = np.zeros_like(paced_ns)
    for run in _runs(facts, launches):
        own = np.array(run, np.int64)
        functions.setdefault(_function(facts, run[0]), []).extend(run)
        saved_ns[own] = _saved_ns(facts, own, paced_ns[own])
    for rows in functions.values():
        own = np.sort(np.array(rows, np.int64))
        spent_ns, own_ns = (facts.median_per_step(own, each[own]) for each in (paced_ns, saved_ns))
        is_large = own_ns >= _MIN_CHAIN_FRACTION * facts.training.step_ns
        # Norms, residuals and activations of any eager model lose as much as that
        if is_large and own_ns > FUSION_SAVING * spent_ns:
            yield own, (own_ns, spent_ns)


def _apart(facts: Facts, launches: Ints, paced_ns: Ints) -> Iterator[tuple[Ints, tuple[int, int]]]:
    """Yield the launches of the largest functions of the rest, each with a line of its own."""
    functions: dict[_Function, list[int]] = {}
    for row in launches.tolist():
        functions.setdefault(_function(facts, row), []).append(row)
    times: list[tuple[int, Ints]] = []
    for rows in functions.values():
        own = np.array(rows, np.int64)
        times.append((facts.median_per_step(own, paced_ns[own]), own))
    times.sort(key=lambda each: -each[0])
    for spent_ns, own in times[:_MAX_APART]:
        saved_ns = int(FUSION_SAVING * spent_ns)
        if saved_ns >= _MIN_CHAIN_FRACTION * facts.training.step_ns:
            yield own, (saved_ns, spent_ns)


def _saved_ns(facts: Facts, run: Ints, paced_ns: Ints) -> Ints:
    """Return what one kernel for all that runs in a row would save of each launch."""
    # It moves about as much as the longest of them; of a loss less is left, as measured
    is_loss = any(_LOSS.search(facts.innermost_op(row)) for row in run.tolist())
    part = 1 - int(paced_ns.max()) / max(int(paced_ns.sum()), 1)
    saved_ns: Ints = (max(part, FUSED_AWAY if is_loss else 0.0) * paced_ns).astype(np.int64)
    return saved_ns


def _runs(facts: Facts, launches: Ints) -> Iterator[list[int]]:
    """Yield the launches of one function and phase that run one after the other."""
    table = facts.launches
    order = np.lexsort((table.start_ns, table.stream.filled(-1), table.device))
    is_own, joins = np.zeros(len(table), np.bool_), _joins(facts)
    is_own[launches] = True
    run: list[int] = []
    for row in order.tolist():
        if run and not ((is_own[row] or joins[row]) and _follows(facts, run[0], row)):
            yield run
            run = []
        if is_own[row] or run:
            run.append(row)
    if run:
        yield run


def _joins(facts: Facts) -> Rows:
    """Tell which launches one kernel would do too: sums of gradients, and copies on the device."""
    adds = facts.launches.phase.where(Phase.GRADIENT_ACCUMULATION)
    return facts.in_steps(adds | facts.named(_COPIES.__contains__))


def _follows(facts: Facts, first: int, row: int) -> bool:
    table = facts.launches
    phases = {table.phase[each] for each in (first, row)} - {Phase.GRADIENT_ACCUMULATION}
    is_step = table.step[first] == table.step[row]
    return is_step and len(phases) == 1 and _function(facts, first) == _function(facts, row)


def _function(facts: Facts, launch: int) -> _Function:
    """Return the file, name and first line of a function: classes of a file share names."""
    place = facts.place(launch)
    starts = facts.analysis.derived.once("functions", lambda: _starts(facts))
    return place.file, place.function, starts.get((place.file, place.function, place.line))


def _starts(facts: Facts) -> dict[_Function, int]:
    """Return the first line of the function of each line, without large gaps to the next."""
    lines: dict[tuple[str | None, str | None], set[int]] = {}
    for place in facts.analysis.places:
        if place.line is not None:
            lines.setdefault((place.file, place.function), set()).add(place.line)
    starts: dict[_Function, int] = {}
    for function, own in lines.items():
        start = before = min(own)
        for line in sorted(own):
            start, before = (start if line - before <= _MAX_GAP else line), line
            starts[(*function, line)] = start
    return starts


def _candidate(facts: Facts, launches: Ints, times: tuple[int, int], remedy: str) -> rule.Candidate:
    saving_ns, critical_ns = times
    return rule.Candidate(
        summary="unfused eager kernels",
        est_saving_ns=saving_ns,
        confidence=finding.Confidence.ESTIMATED,
        remedy=remedy,
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
    "residuals, casts. A function that loses more than that part, and a twentieth of the step, has "
    "a finding of its own: of kernels that run in a row all but the longest, of a loss two thirds. "
    "So have the three largest of the other functions, if they lose a twentieth of the step. "
    "Matrix products, convolutions, attention and the optimizer are not included, nor what "
    "compiled code calls as it is: FFTs and kernels of complex numbers, sorts, sums by index, "
    "factorizations, `F.bilinear`, interpolations with `antialias` and gradients of most others; "
    "nor `grid_sample`, of which compiled code is as slow.",
    not_on_cpu=rule.ON_CPU,
    judge=_judge,
    turn=rule.Turn.REST,
)
