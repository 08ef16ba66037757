"""The rule for arithmetic in float64, to which one operand promotes the others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, launches_by_function, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, count_and_time
from profiler_ext.kineto import classify
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase

# Of torch's kernels, those whose values are float64; of cuBLAS and CUTLASS, their products; of
# cuDNN, those that take such tensors. Scalars in ``double`` say nothing
_FLOAT64 = re.compile(
    r"(?<!optional)<double[,>]|\{lambda\(double\)|(?:\b|_)dgemm|d884gemm|_f64f64_|"
    r"\bdouble(?: const)?\*"
)
_CASTS = "aten::_to_copy"
_COPIES = "aten::copy_"
_OF_OPERAND = "the float64 operand in the dtype of the model: NumPy makes float64 by default"
_OF_MODEL = "model.float() and data in float32: the parameters are in float64, as NumPy's data is"
# Float32 moves half of the bytes
_SAVING = 1 / 2
# A cast moves fewer bytes than the arithmetic on what it makes: a longer one is of other tensors
_MOST_OF_CAST = 2


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    is_float64 = facts.named(lambda name: _FLOAT64.search(name) is not None)
    is_optimizers = facts.launches.phase.where(Phase.OPTIMIZER)
    duration_ns = facts.launches.duration_ns
    # An optimizer computes some scalars in float64, whatever its parameters are in
    is_models = 2 * duration_ns[is_float64 & is_optimizers].sum() > duration_ns[is_optimizers].sum()
    remedy = _OF_MODEL if is_models else _OF_OPERAND
    own = np.flatnonzero(facts.in_steps(is_float64 & ~is_optimizers))
    return _of_functions(facts, own, remedy)


def _of_functions(facts: Facts, launches: Ints, remedy: str) -> Iterator[Candidate]:
    copies = facts.of_op(_COPIES.__eq__) & ~facts.named(classify.is_memory_work)
    copying = np.flatnonzero(facts.in_steps(copies))
    casts = dict(launches_by_function(facts, copying))
    for function, own in launches_by_function(facts, launches):
        copied = casts.get(function, own[:0])
        most_ns = _MOST_OF_CAST * facts.launches.duration_ns[own].max()
        is_own = facts.launches.duration_ns[copied] <= most_ns
        yield _candidate(facts, own, copied[is_own], remedy)


def _candidate(facts: Facts, arithmetic: Ints, casts: Ints, remedy: str) -> Candidate:
    launches = np.union1d(arithmetic, casts)
    gone = np.where(np.isin(launches, casts), 1.0, _SAVING)
    cast_ns = facts.median_per_step(casts, facts.critical_ns(casts))
    longest = facts.longest(launches)
    return Candidate(
        summary="arithmetic in float64",
        est_saving_ns=facts.median_per_step(launches, facts.critical_ns(launches, gone)),
        confidence=Confidence.ESTIMATED,
        remedy=remedy,
        location=location_of(facts.place(longest), facts.launches.name[longest]),
        evidence=(
            *count_and_time(facts, launches),
            Figure("casts to and from it", cast_ns, FigureUnit.NS),
        ),
        launches=launches,
    )


RULE = Rule(
    name="float64",
    title="Arithmetic in float64",
    means="Kernels of a function compute in float64. Copies that convert count where they take no "
    "more than twice as long as the longest of these.",
    because="An operand in float64 promotes the others: their values are converted, the result is "
    "in float64, and so is its gradient. Tables made by NumPy, and Python lists of NumPy numbers, "
    "are in float64. A model takes the dtype of such data with `model.double()`.",
    remedy="Convert the table or the constant once, where it is made, to the dtype of the model. "
    "A model in float64 trains in float32, as a rule: `model.float()`.",
    saving="Half of the time of these kernels on the critical path, as float32 moves half of the "
    "bytes, and all of those casts of that function.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
