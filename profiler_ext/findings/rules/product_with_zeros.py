"""The rule for products with a matrix of which most is zeros."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.code_of_lines import products_with_zeros
from profiler_ext.findings.facts import CannotJudge, Facts, launches_by_line, location_of
from profiler_ext.findings.finding import Confidence
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, count_and_time
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

_PRODUCES = re.compile(r"\b(?:add)?mm\b")
_MIN_FRACTION = 0.05
_LONG_NS = 100_000  # a matrix of a short product is small, and may well be dense
_DIAGONAL = (
    "a product with a diagonal matrix, which scales rows or columns",
    "x * d[:, None] scales rows, x * d columns: no torch.diag, no product",
)
_SPARSE = (
    "a product with a matrix that by its name is mostly zeros",
    "torch.sparse.mm(adjacency.to_sparse_csr(), x), made once; or messages over the edges",
)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    return tuple(_candidates(facts))


def _candidates(facts: Facts) -> Iterator[Candidate]:
    is_product = facts.of_op(lambda op: _PRODUCES.search(op) is not None)
    is_product &= facts.launches.scope.where(Scope.EAGER) & (facts.main_place >= 0)
    products = np.flatnonzero(facts.in_steps(is_product))
    lines = _lines(facts, products)
    for own in launches_by_line(facts, products):
        place = facts.place(int(own[0]))
        is_diagonal = lines.get((place.file, place.function, place.line))
        if is_diagonal is None:
            continue
        spent_ns = facts.median_per_step(own, facts.critical_ns(own))
        is_large = spent_ns >= max(_MIN_FRACTION * facts.training.step_ns, 1)
        if is_large and (is_diagonal or _is_given(facts, own)):
            summary, remedy = _DIAGONAL if is_diagonal else _SPARSE
            yield Candidate(
                summary=summary,
                est_saving_ns=spent_ns,
                confidence=Confidence.UPPER_BOUND,
                remedy=remedy,
                location=location_of(facts.place(facts.longest(own))),
                evidence=count_and_time(facts, own),
                launches=own,
            )


def _lines(facts: Facts, products: Ints) -> dict[tuple[str | None, str | None, int | None], bool]:
    """Return the lines of such products, and whether the matrix is diagonal."""
    functions = {(each.file, each.function) for each in map(facts.place, products.tolist())}
    codes: dict[tuple[str | None, str | None], dict[int, str]] = {}
    for place in facts.analysis.places:
        if (place.file, place.function) in functions and place.line is not None and place.code:
            codes.setdefault((place.file, place.function), {})[place.line] = place.code
    return {
        (*function, line): is_diagonal
        for function, own in codes.items()
        for line, is_diagonal in products_with_zeros(own).items()
    }


def _is_given(facts: Facts, products: Ints) -> bool:
    """Tell whether the matrix is large, and no gradient of it is computed: it is not learned."""
    behind = int(facts.launches.phase.where(Phase.BACKWARD)[products].sum())
    forward = products[facts.launches.phase.where(*_FORWARD)[products]]
    is_long = len(forward) and np.median(facts.launches.duration_ns[forward]) >= _LONG_NS
    return bool(is_long) and behind <= len(forward)


_FORWARD = (Phase.FORWARD, Phase.OTHER)

RULE = Rule(
    name="product_with_zeros",
    title="Products with a matrix of zeros",
    means="By the text of its line an eager product multiplies by a diagonal matrix (`torch.diag`, "
    "`diag_embed`, `eye`), by what `to_dense` or `block_diag` returned, or by a matrix that is "
    "named an adjacency or a Laplacian. The latter takes 100 us or more and has no gradient, so "
    "that it is large and not learned. The products take 5% of the step or more.",
    because="A product takes as long for zeros as for other numbers. The adjacency matrix of a "
    "graph with 16,000 nodes and 100,000 edges has one entry that is not zero in a thousand.",
    remedy="Scale rows or columns in place of a diagonal matrix. Keep an adjacency matrix sparse "
    "(`to_sparse_csr`, `torch.sparse.mm`), or gather and add along the edges (PyG's `edge_index`).",
    saving="Time of the products on the critical path, forward and backward. An upper bound: how "
    "many entries are zero is not in a recording, and a sparse product takes time, too.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
