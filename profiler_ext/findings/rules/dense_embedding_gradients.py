"""The rule for embeddings whose gradients are mostly zeros."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, launches_by_line, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule
from profiler_ext.records.events import Ints

_BACKWARD = "embedding_backward"
_FILLS = frozenset({"aten::fill_", "aten::zero_"})
_LOOKUPS = frozenset({"aten::gather", "aten::index_select", "aten::embedding"})
# From so many times the time of reading the looked-up rows, the zeros are most of the gradient
_MUCH_LARGER = 4
# How often an update reads or writes as many bytes as the zeros of its gradient are
_PASSES = {
    "aten::_foreach_add_": 3,
    "aten::_foreach_addcdiv_": 7,
    "aten::_fused_sgd_": 3,
    "aten::_fused_adagrad_": 5,
    "aten::_fused_adam_": 7,
    "aten::_fused_adamw_": 7,
}


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    of_backward = facts.mainly(lambda place: _BACKWARD in (place.aten_op or ""))
    fills = np.flatnonzero(facts.in_steps(of_backward & facts.of_op(_FILLS.__contains__)))
    return _of_lines(facts, fills)


def _of_lines(facts: Facts, fills: Ints) -> Iterator[Candidate]:
    lookups = np.flatnonzero(facts.in_steps(facts.of_op(_LOOKUPS.__contains__)))
    for own in launches_by_line(facts, fills):
        place = facts.place(int(own[0]))
        is_here = [
            (each.file, each.line) == (place.file, place.line)
            for each in map(facts.place, lookups.tolist())
        ]
        read_ns = _time(facts, lookups[np.array(is_here, np.bool_)])
        filled_ns = _time(facts, own)
        if place.line is not None and filled_ns >= _MUCH_LARGER * read_ns > 0:
            yield _candidate(facts, own, filled_ns, read_ns)


def _time(facts: Facts, launches: Ints) -> int:
    return facts.median_per_step(launches, facts.launches.duration_ns[launches])


def _candidate(facts: Facts, fills: Ints, filled_ns: int, read_ns: int) -> Candidate:
    updates, updated_ns = _updates(facts, filled_ns)
    return Candidate(
        summary="an embedding's gradient is written and applied whole, for the few rows looked up",
        est_saving_ns=facts.median_per_step(fills, facts.critical_ns(fills)) + updated_ns,
        confidence=Confidence.ESTIMATED,
        remedy="nn.Embedding(sparse=True) and SparseAdam (or SGD or Adagrad) for this table",
        location=location_of(facts.place(int(fills[0]))),
        evidence=(
            Figure("filling the gradient with zeros takes", filled_ns, FigureUnit.NS),
            Figure("updating all rows takes", updated_ns, FigureUnit.NS),
            Figure("reading the rows looked up takes", read_ns, FigureUnit.NS),
        ),
        launches=np.concatenate([fills, updates]),
    )


def _updates(facts: Facts, filled_ns: int) -> tuple[Ints, int]:
    """Return the optimizer's launches, and the time of theirs for a table of this size."""
    of_op = {op: np.flatnonzero(facts.in_steps(facts.of_op(op.__eq__))) for op in _PASSES}
    times = {op: facts.median_per_step(own, facts.critical_ns(own)) for op, own in of_op.items()}
    op = max(times, key=times.__getitem__)
    return of_op[op], min(times[op], _PASSES[op] * filled_ns)


RULE = Rule(
    name="dense_embedding_gradients",
    title="Embeddings whose gradients are mostly zeros",
    means="The backward of an eager embedding fills a gradient of the whole table with zeros, "
    "which takes several times as long as reading the rows that the batch looks up.",
    because="The gradient of `nn.Embedding` is dense by default: all rows are written, and the "
    "optimizer reads and updates all of them, too, those without a gradient included.",
    remedy="`nn.Embedding(..., sparse=True)`, whose gradient has the rows of the batch alone, with "
    "SGD, Adagrad or `SparseAdam` for this table. Rows that are not looked up then keep their "
    "momentum and get no weight decay.",
    saving="Time of filling the gradient on the critical path, and the optimizer's time for a "
    "table of that size: as many times the filling as its update reads or writes the table, at "
    "most all of the optimizer's time.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
