"""The rule for rows that are gathered and written, only to be added up or multiplied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from profiler_ext.findings.critical_path import Floats
from profiler_ext.findings.facts import CannotJudge, Facts, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, count_and_time
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

_EMBEDS = "aten::embedding"
_LOOKS_UP = frozenset({_EMBEDS, "aten::index_select", "aten::gather", "aten::index"})
_REDUCES = frozenset({"aten::mean", "aten::sum"})
_SCATTERS = frozenset(
    f"aten::{name}{end}"
    for name in ("scatter_add", "index_add", "scatter_reduce")
    for end in ("", "_")
)
# What may be between: zeros to add to, and a weight for each row
_BETWEEN = frozenset({"aten::new_zeros", "aten::zeros", "aten::zeros_like", "aten::mul"})
_MAX_BETWEEN = 3
# Of gathering and scattering with their gradients 0.37 was gone in a sparse product, on an H100
_BY_PRODUCT = 0.4
_HALF = 0.5
_JOINS = frozenset({"aten::cat", "aten::concat", "aten::concatenate"})
_MULTIPLIES = frozenset({"aten::linear", "aten::matmul", "aten::addmm", "aten::mm"})
_OF_PRODUCT = _MULTIPLIES | {"aten::sum", "aten::bmm"}
_MIN_ENDS = 2


@dataclass(frozen=True, slots=True)
class _Sum:
    """A line that gathers rows, and the one that adds them up."""

    gathers: Ints
    sums: Ints
    is_bag: bool  # rows of one length each, not scattered by an index


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    return (*(_candidate(facts, each) for each in _sums(facts)), *_products(facts))


def _sums(facts: Facts) -> Iterator[_Sum]:
    """Yield the pairs of lines of one function, of which the one adds what the other gathers."""
    launches = facts.launches
    is_eager = launches.scope.where(Scope.EAGER)
    is_eager &= launches.phase.where(Phase.FORWARD, Phase.OTHER)  # or outside of a module
    rows = np.flatnonzero(facts.in_steps(is_eager & (facts.main_place >= 0)))
    rows = rows[np.argsort(launches.start_ns[rows], kind="stable")]
    pairs: dict[tuple[str | None, int | None, int | None, bool], list[tuple[int, int]]] = {}
    gather, between = -1, 0
    for row in rows.tolist():
        place = facts.place(row)
        if place.aten_op in _LOOKS_UP:
            gather, between = row, 0
            continue
        if gather < 0:
            continue
        own = facts.place(gather)
        is_near = (place.file, place.function) == (own.file, own.function)
        is_near |= place.module == own.module and bool(own.module)  # a library's functions
        if is_near and place.aten_op in _BETWEEN and between < _MAX_BETWEEN:
            between += 1
            continue
        is_bag = own.aten_op == _EMBEDS and place.aten_op in _REDUCES and not between
        if is_near and (is_bag or place.aten_op in _SCATTERS):
            key = (own.file, own.line, place.line, is_bag)
            pairs.setdefault(key, []).append((gather, row))
        gather = -1
    for (*_, is_bag), found in pairs.items():
        gathers, sums = (np.array(each, np.int64) for each in zip(*found, strict=True))
        # Weights of rows are gathered, too, and take much less than adding the rows
        gather_ns, sum_ns = (int(launches.duration_ns[each].sum()) for each in (gathers, sums))
        if is_bag or gather_ns > _HALF * sum_ns:
            yield _Sum(gathers, sums, is_bag)


def _products(facts: Facts) -> Iterator[Candidate]:
    """Yield the products with rows that are gathered twice and joined, and added up later."""
    launches = facts.launches
    is_own = launches.scope.where(Scope.EAGER) & launches.phase.where(Phase.FORWARD, Phase.OTHER)
    rows = np.flatnonzero(facts.in_steps(is_own & (facts.main_place >= 0)))
    places = [facts.place(row) for row in rows[np.argsort(launches.start_ns[rows])].tolist()]
    # A library's functions are in files of their own
    adding = {place.module or place.file for place in places if place.aten_op in _SCATTERS}
    lines: dict[tuple[str | None, int | None], int | None] = {}
    ends, joined = 0, None
    for place in places:
        if place.aten_op in _LOOKS_UP - {_EMBEDS}:
            ends, joined = ends + 1, None
        elif place.aten_op in _JOINS and ends >= _MIN_ENDS:
            ends, joined = 0, place
        else:
            is_product = joined is not None and place.aten_op in _MULTIPLIES
            if joined and is_product and (joined.module or joined.file) in adding:
                lines[place.file, place.line] = joined.line
            ends, joined = 0, None
    for (file, line), joining in lines.items():
        yield _product(facts, (file, line), joining)


def _product(facts: Facts, line: tuple[str | None, int | None], joining: int | None) -> Candidate:
    is_own = facts.mainly(lambda place: (place.file, place.line) == line)
    is_own &= facts.of_op(_OF_PRODUCT.__contains__)
    launches = np.flatnonzero(facts.in_steps(is_own))
    return Candidate(
        summary="a product of rows that were gathered for each edge and joined",
        est_saving_ns=_time(facts, launches),
        confidence=Confidence.UPPER_BOUND,
        remedy="multiply the nodes by each half of the weight, then gather and add",
        location=location_of(facts.place(facts.longest(launches))),
        evidence=(
            *count_and_time(facts, launches),
            Figure("the line that joins them", joining or 0),
        ),
        launches=launches,
    )


def _gradients(facts: Facts, launches: Ints) -> Ints:
    """Return the launches of the backward of these lines' ops."""
    lines = {(place.file, place.line) for place in map(facts.place, launches.tolist())}
    backward = np.flatnonzero(facts.in_steps(facts.launches.phase.where(Phase.BACKWARD)))
    backward = backward[facts.main_place[backward] >= 0]
    is_own = [(place.file, place.line) in lines for place in map(facts.place, backward.tolist())]
    return backward[np.array(is_own, np.bool_)] if len(backward) else backward


def _time(facts: Facts, launches: Ints, gone: Floats | float = 1.0) -> int:
    return facts.median_per_step(launches, facts.critical_ns(launches, gone))


def _candidate(facts: Facts, pair: _Sum) -> Candidate:
    spread, returned = _gradients(facts, pair.sums), _gradients(facts, pair.gathers)
    if pair.is_bag:
        # One kernel reads the rows; none writes them, reads them again or writes their gradients
        every = np.unique(np.concatenate([pair.gathers, pair.sums, np.setdiff1d(spread, returned)]))
        saved_ns = _time(facts, every, np.where(np.isin(every, pair.gathers), _HALF, 1.0))
        summary, remedy = "embeddings are written only to be averaged or added", _BAG
    else:
        every = np.unique(np.concatenate([pair.gathers, pair.sums, spread, returned]))
        saved_ns = _time(facts, every, _BY_PRODUCT)
        summary, remedy = "rows are gathered and written only to be added by index", _SPARSE
    launches = np.unique(np.concatenate([pair.gathers, pair.sums, spread, returned]))
    return Candidate(
        summary=summary,
        est_saving_ns=saved_ns,
        confidence=Confidence.ESTIMATED,
        remedy=remedy,
        location=location_of(facts.place(facts.longest(pair.gathers))),
        evidence=(
            *count_and_time(facts, launches),
            Figure("the line that adds them", facts.place(int(pair.sums[0])).line or 0),
            Figure("that takes", _time(facts, pair.sums), FigureUnit.NS),
        ),
        launches=launches,
    )


_BAG = "nn.EmbeddingBag (mode='mean' or 'sum') in place of nn.Embedding and the reduction"
_SPARSE = "torch.sparse.mm of the adjacency matrix and the rows (PyG: adj_t in place of edge_index)"

RULE = Rule(
    name="gathered_rows",
    title="Rows that are gathered only to be added up or multiplied",
    means="A line looks rows up (`F.embedding`, `index_select`, `gather`, `x[index]`) and the next "
    "launches of the function average or add them: over one dimension, or by another index "
    "(`scatter_add_`, `index_add_`). Zeros to add to and a weight for each row may be between. Or "
    "two tensors of such rows are joined (`torch.cat`), a linear layer multiplies them next, and "
    "the module adds rows up by an index: a message of both ends of each edge.",
    because="All rows are written to memory, read again and dropped; their gradients are, too. "
    "With sixty rows for each sum that is most of what such a layer moves. A product with rows "
    "that are gathered many times multiplies the same row as often.",
    remedy="`nn.EmbeddingBag` looks up and reduces in one kernel. Messages over the edges of a "
    "graph are a product with the sparse adjacency matrix: `torch.sparse.mm`, or `adj_t` of a "
    "`SparseTensor` in PyG. A linear layer of two joined tensors is the sum of two: `x @ left` and "
    "`x @ right` of the nodes, gathered and added for each edge.",
    saving="On the critical path: of embeddings half of the lookup (its writes), the reduction, "
    "and the launches that write its gradient for each row. Of gathering and scattering two "
    "fifths, with their gradients: the rows still have to be read. Of joined rows the product with "
    "its backward, an upper bound: the nodes remain to be multiplied.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
