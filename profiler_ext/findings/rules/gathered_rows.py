"""The rule for rows that are gathered and written, only to be added up or multiplied."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from profiler_ext.findings.autograd_nodes import with_backward
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
# What a kernel that reads rows would compute of each, and how it would reduce them
_POINTWISE = re.compile(r"aten::(mul|add|r?sub|abs|neg|pow|square)_?$")
_SCORES = re.compile(r"aten::(sum|mean|amax|amin|norm|linalg_vector_norm)$")
# What is computed of rows is as large as they are where no op takes more than so many reads
_MAX_LARGER = 4
# Of gathering and scattering with their gradients 0.37 was gone in a sparse product, on an H100
_BY_PRODUCT = 0.4
_HALF = 0.5
_JOINS = frozenset({"aten::cat", "aten::concat", "aten::concatenate"})
_MULTIPLIES = frozenset({"aten::linear", "aten::matmul", "aten::addmm", "aten::mm"})
_OF_PRODUCT = _MULTIPLIES | {"aten::sum", "aten::bmm"}
_MIN_ENDS = 2


class _Kind(Enum):
    """What becomes of the rows."""

    BAG = auto()  # those of one length each are averaged or added
    SCORES = auto()  # each is multiplied by or compared with another one, and reduced
    BY_INDEX = auto()  # they are added by an index


@dataclass(frozen=True, slots=True)
class _Sum:
    """A line that gathers rows, and the one that adds them up."""

    gathers: Ints
    between: Ints  # in pairs with those that gather
    sums: Ints
    kind: _Kind


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    return (*(_candidate(facts, each) for each in _sums(facts)), *_products(facts))


def _sums(facts: Facts) -> Iterator[_Sum]:
    """Yield the pairs of lines of one function, of which the one adds what the other gathers."""
    launches = facts.launches
    is_eager = launches.scope.where(Scope.EAGER)
    is_eager &= launches.phase.where(Phase.FORWARD, Phase.OTHER)  # or outside of a module
    rows = np.flatnonzero(facts.in_steps(is_eager & (facts.main_place >= 0)))
    rows = rows[np.argsort(launches.start_ns[rows], kind="stable")]
    found: dict[tuple[str | None, int | None, int | None, _Kind], list[list[int]]] = {}
    chain: list[int] = []  # what gathers, and what is between
    for row in rows.tolist():
        place = facts.place(row)
        if place.aten_op in _LOOKS_UP:
            chain = [row]
            continue
        if not chain:
            continue
        own = facts.place(chain[0])
        is_near = (place.file, place.function) == (own.file, own.function)
        is_near |= place.module == own.module and bool(own.module)  # a library's functions
        is_between = place.aten_op in _BETWEEN or _POINTWISE.match(place.aten_op or "") is not None
        if is_near and is_between and len(chain) <= _MAX_BETWEEN:
            chain.append(row)
            continue
        kind = _kind([facts.place(each).aten_op or "" for each in chain], place.aten_op or "")
        if is_near and kind is not None:
            found.setdefault((own.file, own.line, place.line, kind), []).append([*chain, row])
        chain = []
    for (*_, kind), chains in found.items():
        gathers = np.array([each[0] for each in chains], np.int64)
        between = np.array([row for each in chains for row in each[1:-1]], np.int64)
        pair = _Sum(gathers, between, np.array([each[-1] for each in chains], np.int64), kind)
        if _is_of_rows(facts, pair):
            yield pair


def _kind(chain: list[str], last: str) -> _Kind | None:
    """Return what becomes of rows, by the ops that look them up, come between, and reduce."""
    gathers, *between = chain
    if last in _SCATTERS:
        return _Kind.BY_INDEX if set(between) <= _BETWEEN else None
    if between and _SCORES.match(last) and all(map(_POINTWISE.match, between)):
        return _Kind.SCORES
    is_bag = gathers == _EMBEDS and last in _REDUCES and not between
    return _Kind.BAG if is_bag else None


def _is_of_rows(facts: Facts, pair: _Sum) -> bool:
    """Tell whether what is added are the rows that were gathered."""
    parts = (pair.gathers, pair.between, pair.sums)
    gather_ns, between_ns, sum_ns = (int(facts.launches.duration_ns[each].sum()) for each in parts)
    if pair.kind is _Kind.SCORES:
        each_ns = between_ns * len(pair.gathers) / len(pair.between)
        return gather_ns / _MAX_LARGER <= each_ns <= _MAX_LARGER * gather_ns
    # Weights of rows are gathered, too, and take much less than adding the rows
    return pair.kind is _Kind.BAG or gather_ns > _HALF * sum_ns


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


def _parts_gone(facts: Facts, pair: _Sum) -> tuple[Ints, Floats, Ints]:
    """Return the launches that lose time, the part of each, and the others that are of it."""
    spread, returned = _gradients(facts, pair.sums), _gradients(facts, pair.gathers)
    if pair.kind is _Kind.BAG:
        # One kernel reads the rows; none writes them, reads them again or writes their gradients
        behind = np.setdiff1d(spread, returned)
        every = np.unique(np.concatenate([pair.gathers, pair.sums, behind]))
        return every, np.where(np.isin(every, pair.gathers), _HALF, 1.0), returned
    if pair.kind is _Kind.SCORES:
        # The same forward; backward what writes their gradients remains, one of two products
        ahead = np.union1d(pair.between, pair.sums)
        behind = np.setdiff1d(with_backward(facts, ahead), ahead)
        every = np.unique(np.concatenate([pair.gathers, pair.between, pair.sums, behind]))
        halves = np.concatenate([pair.gathers, behind])
        return every, np.where(np.isin(every, halves), _HALF, 1.0), every
    every = np.unique(np.concatenate([pair.gathers, pair.sums, spread, returned]))
    return every, np.full(len(every), _BY_PRODUCT), every


def _candidate(facts: Facts, pair: _Sum) -> Candidate:
    shorter, gone, others = _parts_gone(facts, pair)
    summary, remedy = _SAYS[pair.kind]
    launches = np.union1d(shorter, others)
    return Candidate(
        summary=summary,
        est_saving_ns=_time(facts, shorter, gone),
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


_SAYS = {
    _Kind.BAG: (
        "embeddings are written only to be averaged or added",
        "nn.EmbeddingBag (mode='mean' or 'sum') in place of nn.Embedding and the reduction",
    ),
    _Kind.SCORES: (
        "rows are gathered and written only to be scored and reduced",
        "a product with all rows, then gather what it gives; or torch.compile of the function",
    ),
    _Kind.BY_INDEX: (
        "rows are gathered and written only to be added by index",
        "torch.sparse.mm of the adjacency matrix and the rows (PyG: adj_t in place of edge_index)",
    ),
}

RULE = Rule(
    name="gathered_rows",
    title="Rows that are gathered only to be added up or multiplied",
    means="A line looks rows up (`F.embedding`, `index_select`, `gather`, `x[index]`) and the next "
    "launches of the function average or add them: over one dimension, or by another index "
    "(`scatter_add_`, `index_add_`). Zeros to add to and a weight for each row may be between. Or "
    "up to three products, sums or differences with them are between, and a sum, mean, norm or "
    "extremum: scores of candidates. Or two tensors of such rows are joined (`torch.cat`), a "
    "linear layer multiplies them next, and the module adds rows up by an index: a message of both "
    "ends of each edge.",
    because="All rows are written to memory, read again and dropped; their gradients are, too. "
    "With sixty rows for each sum that is most of what such a layer moves. A product with rows "
    "that are gathered many times multiplies the same row as often.",
    remedy="`nn.EmbeddingBag` looks up and reduces in one kernel. Messages over the edges of a "
    "graph are a product with the sparse adjacency matrix: `torch.sparse.mm`, or `adj_t` of a "
    "`SparseTensor` in PyG. Scores of many candidates from a small table are a product with all of "
    "it, `(query @ table.weight.T).gather(1, index)`; from a large one, compiled code multiplies "
    "rows as it reads them. A linear layer of two joined tensors is the sum of two: `x @ left` and "
    "`x @ right` of the nodes, gathered and added for each edge.",
    saving="On the critical path: of embeddings half of the lookup (its writes), the reduction, "
    "and the launches that write its gradient for each row. Of gathering and scattering two "
    "fifths, with their gradients: the rows still have to be read. Of scores half of the lookup, "
    "what computes and reduces them, and half of the backward of that. Of joined rows the product "
    "with its backward, an upper bound: the nodes remain to be multiplied.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
