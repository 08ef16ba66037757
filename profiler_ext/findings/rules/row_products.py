"""The rule for dot products of many rows that run as a batch of matrix products."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.autograd_nodes import with_backward
from profiler_ext.findings.facts import CannotJudge, Facts, Rows, launches_by_line, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.groups import blocks_of
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, count_and_time
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

_MULTIPLIES = "aten::bmm"
# cuBLAS's kernels for a matrix and a vector, and for products whose inner dimension is one
_OF_VECTOR = re.compile(r"gemv|\bdot_kernel")
_OF_ONE = re.compile(r"gemmk1_kernel")
_MIN_ROWS = 10_000
# A block for each pair: longer ones of them read rows at a rate that is near the memory's
_MAX_NS_PER_ROW = 2.0
_MIN_FRACTION = 0.03
# Of the time of one such line, with rows of 32 numbers on an H100, 0.76 was gone
_SAVING = 2 / 3


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    table = facts.launches
    is_own = table.scope.where(Scope.EAGER) & table.phase.where(Phase.FORWARD)
    is_own &= facts.of_op(_MULTIPLIES.__eq__) & (facts.main_place >= 0)
    is_own &= facts.named(lambda name: _OF_VECTOR.search(name) is not None)
    is_of_one = facts.named(lambda name: _OF_ONE.search(name) is not None)
    return _candidates(facts, np.flatnonzero(facts.in_steps(is_own)), is_of_one)


def _candidates(facts: Facts, rows: Ints, is_of_one: Rows) -> Iterator[Candidate]:
    is_product = facts.of_op(_MULTIPLIES.__eq__)
    for own in launches_by_line(facts, rows) if is_of_one.any() else ():
        every = with_backward(facts, own)
        behind = np.setdiff1d(every[is_product[every]], own)
        # Of a matrix and a vector one gradient is a product with a matrix: here neither is
        if not len(behind) or not is_of_one[behind].all():
            continue
        products = np.union1d(own, behind)
        calls = np.unique(facts.launches.op_event[own].filled(-1))
        pairs = int(blocks_of(facts, own).sum()) // len(calls)  # each has a block
        each_ns = int(facts.launches.duration_ns[own].sum()) / len(calls) / max(pairs, 1)
        spent_ns = facts.median_per_step(products, facts.critical_ns(products))
        is_large = spent_ns >= _MIN_FRACTION * facts.training.step_ns
        if is_large and pairs >= _MIN_ROWS and each_ns <= _MAX_NS_PER_ROW:
            yield _candidate(facts, own, products, (pairs, spent_ns))


def _candidate(facts: Facts, own: Ints, products: Ints, figures: tuple[int, int]) -> Candidate:
    pairs, spent_ns = figures
    return Candidate(
        summary="dot products of many rows run as a batch of matrix products",
        est_saving_ns=int(_SAVING * spent_ns),
        confidence=Confidence.ESTIMATED,
        remedy="(left * right).sum(-1), in place of einsum or bmm",
        location=location_of(facts.place(facts.longest(own))),
        evidence=(
            *count_and_time(facts, products),
            Figure("that sets the pace", spent_ns, FigureUnit.NS),
            Figure("pairs of rows at a time", pairs),
        ),
        launches=products,
    )


RULE = Rule(
    name="row_products",
    title="Dot products of rows as a batch of matrix products",
    means="A line runs `bmm` for 10,000 pairs of rows or more by a kernel for vectors, with a "
    "block for each pair that takes 2 ns or less of the whole, and both of its gradients are "
    "products whose inner dimension is one (`gemmk1_kernel`): a row and a number. They take 3% of "
    "a step or more. In inference nothing tells such products from those of a matrix.",
    because='`torch.einsum("ec,ec->e", left, right)` calls `bmm` with a matrix of one row and one '
    "of one column for each pair. A block of up to 256 threads then multiplies a few dozen "
    "numbers, cuBLAS launches a kernel for each 65,535 of them, and the device begins blocks "
    "rather than reads memory.",
    remedy="`(left * right).sum(-1)`: pointwise ops and a reduction read rows at the memory's "
    "bandwidth, and one kernel does both in a compiled function.",
    saving="Two thirds of the time on the critical path of the products and those of their "
    "backward: how long the rows are is not in the recording. Of one such line (rows of 32 "
    "numbers, on an H100) three quarters were gone.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
