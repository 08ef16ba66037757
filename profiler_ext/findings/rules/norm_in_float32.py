"""The rule for norms that run in float32 between casts from half precision and back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.autograd_nodes import with_backward
from profiler_ext.findings.facts import CannotJudge, Facts, Rows, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, count_and_time
from profiler_ext.findings.rules.dtype_conversion import is_conversion
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

_NORMALISES = re.compile(r"aten::(native_layer_norm|_fused_rms_norm|native_group_norm)$")
_NARROWS = re.compile(r"b?float16_copy_kernel")
# Elements of half the size: a norm's kernel does nothing but read and write them
_OF_NORM = 0.5
_MIN_FRACTION = 0.02


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    norms, casts = _between_casts(facts)
    if not len(norms):
        return ()
    norms, casts = with_backward(facts, norms), with_backward(facts, casts)
    norms = np.setdiff1d(norms, casts)
    saved_ns = facts.median_per_step(casts, facts.critical_ns(casts))
    of_norms_ns = facts.median_per_step(norms, facts.critical_ns(norms, _OF_NORM))
    if saved_ns + of_norms_ns < _MIN_FRACTION * facts.training.step_ns:
        return ()
    spent_ns = facts.median_per_step(norms, facts.launches.duration_ns[norms])
    return (
        Candidate(
            summary="norms run in float32 between casts of what they read and write",
            est_saving_ns=saved_ns + of_norms_ns,
            confidence=Confidence.ESTIMATED,
            remedy="leave the casts out: norms of bfloat16 compute in float32",
            location=location_of(facts.place(facts.longest(norms))),
            evidence=(*count_and_time(facts, casts), Figure("norms take", spent_ns, FigureUnit.NS)),
            launches=np.union1d(norms, casts),
        ),
    )


def _between_casts(facts: Facts) -> tuple[Ints, Ints]:
    """Return the norms of a forward right after a cast and right before one, and these casts."""
    table, places = facts.launches, facts.analysis.places
    is_eager = table.scope.where(Scope.EAGER) & table.phase.where(Phase.FORWARD)
    rows = np.flatnonzero(facts.in_steps(is_eager & (facts.main_place >= 0)))
    rows = rows[
        np.lexsort((table.start_ns[rows], table.stream[rows].filled(-1), table.device[rows]))
    ]
    is_cast = facts.named(is_conversion)[rows]
    is_narrowed = facts.named(lambda name: _NARROWS.search(name) is not None)[rows]
    is_norm = facts.of_op(lambda op: _NORMALISES.match(op) is not None)[rows]
    is_norm &= ~is_cast
    # Of one function of one module: a cast of what comes next is not this norm's
    at = [
        (places[each].file, places[each].function, places[each].module)
        for each in facts.main_place[rows].tolist()
    ]
    norms, casts = list[int](), list[int]()
    for first, last in _runs(is_norm):
        before, after = first - 1, last + 1
        if before < 0 or after >= len(rows) or not (at[before] == at[first] == at[after]):
            continue
        if is_cast[before] and not is_narrowed[before] and is_narrowed[after]:
            norms += range(first, after)
            casts += (before, after)
    return np.sort(rows[norms]), np.sort(rows[casts])


def _runs(flags: Rows) -> Iterator[tuple[int, int]]:
    """Yield the first and the last index of each run of flagged rows."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    yield from ((int(first), int(end) - 1) for first, end in edges.reshape(-1, 2))


RULE = Rule(
    name="norm_in_float32",
    title="Norms in float32 between casts",
    means="In eager code a layer, group or RMS norm runs right after a cast to float32 and right "
    "before a cast to half precision, all three in one function of one module, and the casts with "
    "what the norm would save take 2% of a step or more.",
    because="Code casts to float32 so that means and variances are precise. Torch's norms of "
    "bfloat16 and float16 compute both in float32 already, and keep only what they return in half "
    "precision. Each cast reads and writes the whole tensor once more, and so does its backward; "
    "the norm itself moves twice the bytes.",
    remedy="Call the norm on the tensor in half precision, with its weights in the same dtype: "
    "these are rounded then, and what it returns is rounded once, as it is now.",
    saving="Time of the casts on the critical path with that of their backward, and half of the "
    "norms' own: they move half the bytes.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
