"""The rule for `matmul` that copies an operand for each of a batch, to multiply it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.autograd_nodes import node_around, nodes_of, with_backward
from profiler_ext.findings.facts import CannotJudge, Facts, Rows, launches_by_line, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, count_and_time
from profiler_ext.findings.rules.dtype_conversion import is_conversion
from profiler_ext.records.events import Ints, flag_rows
from profiler_ext.records.vocabulary import Phase, Scope

_MATMUL, _COPIES, _MULTIPLIES, _SUMS = "aten::matmul", "aten::copy_", "aten::bmm", "aten::sum"
_EXPANDED = "autograd::engine::evaluate_function: ExpandBackward0"
_MIN_FRACTION = 0.03


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    table = facts.launches
    is_own = table.scope.where(Scope.EAGER) & table.phase.where(Phase.FORWARD)
    is_own &= facts.mainly(lambda place: place.aten_op == _MATMUL)
    is_copy = facts.of_op(_COPIES.__eq__) & ~facts.named(is_conversion)
    rows = np.flatnonzero(facts.in_steps(is_own & (is_copy | facts.of_op(_MULTIPLIES.__eq__))))
    if not is_copy[rows].any():
        return ()
    return _candidates(facts, rows, is_copy)


def _candidates(facts: Facts, rows: Ints, is_copy: Rows) -> Iterator[Candidate]:
    for own in launches_by_line(facts, rows):
        copies = own[is_copy[own]]
        every = with_backward(facts, own) if len(copies) else own
        sums = _sums(facts, every)
        # The gradient of a copy that is only contiguous is no sum
        if len(sums) and len(sums) >= len(copies):
            yield from _candidate(facts, copies, sums, np.setdiff1d(every, copies))


def _sums(facts: Facts, launches: Ints) -> Ints:
    """Return what sums the gradients of all that an operand was copied to."""
    nodes, at = nodes_of(facts), node_around(facts, launches)
    name = facts.analysis.recording.trace.events.name
    is_expanded = np.append(flag_rows(name, _EXPANDED.__eq__)[nodes.event], False)
    return launches[is_expanded[at] & facts.of_op(_SUMS.__eq__)[launches]]


def _candidate(facts: Facts, copies: Ints, sums: Ints, others: Ints) -> Iterator[Candidate]:
    products = others[facts.of_op(_MULTIPLIES.__eq__)[others]]
    copying_ns = int(np.median(facts.launches.duration_ns[copies]))
    launches = np.concatenate([copies, sums, products])
    duration_ns = facts.launches.duration_ns[launches]
    # A product reads what a copy wrote, or writes a gradient of that size: as long as the copy
    gone = np.minimum(copying_ns / np.maximum(duration_ns, 1), 1)
    gone[: len(copies) + len(sums)] = 1
    saved_ns = facts.median_per_step(launches, facts.critical_ns(launches, gone))
    if saved_ns < _MIN_FRACTION * facts.training.step_ns:
        return
    times = (("sums of its gradients take", sums), ("the products take", products))
    yield Candidate(
        summary="matmul copies an operand that it broadcasts, for each matrix of a batch",
        est_saving_ns=saved_ns,
        confidence=Confidence.UPPER_BOUND,
        remedy="einsum, or bmm over the operand's own batch: no copy for each sample",
        location=location_of(facts.place(facts.longest(copies))),
        evidence=(
            *count_and_time(facts, copies),
            *(
                Figure(
                    name,
                    facts.median_per_step(own, facts.launches.duration_ns[own]),
                    FigureUnit.NS,
                )
                for name, own in times
            ),
        ),
        launches=np.sort(launches),
    )


RULE = Rule(
    name="broadcast_matmul",
    title="A matmul that copies what it broadcasts",
    means="In the forward `matmul` copies an operand, and its backward sums the gradients of all "
    "copies: the operand was broadcast over a batch. The copies with what they make products read "
    "and write take 3% of a step or more.",
    because="`matmul` of more than two dimensions expands both operands to one batch and calls "
    "`bmm`, which takes no operand with a stride of 0 in a batch of several dimensions: the "
    "weights of each of 32 sensors are written out for each sample, read by a product with a "
    "single row, and their gradient is written as often before it is summed.",
    remedy='`torch.einsum("sij,bsj->bsi", weight, x)` makes the dimension that only one operand '
    "has a dimension of the product, and copies no weights; so does `bmm` with the weights' own "
    "batch first (`x.transpose(0, 1)`).",
    saving="Time on the critical path of the copies and the sums of their gradients, and of each "
    "product as much as a copy takes: it reads what that wrote, or writes a gradient of its size. "
    "An upper bound: the products that remain read the operand once. Only where a backward tells.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
