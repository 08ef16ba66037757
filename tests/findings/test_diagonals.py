"""Products of all pairs of which only the diagonal is read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler_ext.findings.diagonals import diagonals_of, hessians_of
from profiler_ext.findings.rules import discarded_work
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.lineage import Frame
from profiler_ext.records.recording import Function, Position, PythonLines
from profiler_ext.records.vocabulary import Phase
from tests.findings.stepping import US, at, is_silent, only
from tests.findings.test_autograd_nodes import ENGINE, GEMM, STEPS, Steps


@pytest.mark.parametrize(
    ("codes", "lines"),
    [
        ({3: "own = (x @ x.mT).diagonal(dim1=1, dim2=2)"}, {3: {3}}),
        ({3: "own = torch.diagonal(torch.bmm(x, y))"}, {3: {3}}),
        ({3: "pairs = torch.bmm(x, y)", 5: "return pairs[:, at, at]"}, {3: {5}}),
        ({3: "pairs = x @ y", 4: "a = pairs.trace()", 5: "b = torch.diag(pairs)"}, {3: {4, 5}}),
        ({3: "pairs = x @ y", 4: "a = pairs.trace()", 5: "pairs = x", 6: "f(pairs)"}, {3: {4}}),
        ({3: "pairs = x @ y", 4: "own = pairs.diagonal()", 5: "return own / pairs.sum()"}, {}),
        ({3: "pairs = x @ y", 4: "own = pairs[:, i, j]"}, {}),
        ({3: "pairs = x @ y", 4: "own = pairs.diagonal()", 5: "return f(pairs,"}, {}),
        ({3: "pairs = x + y", 4: "own = pairs.diagonal()"}, {}),
        ({3: "pairs = x @ y"}, {}),
    ],
)
def test_lines_of_products_and_those_that_read_their_diagonal_are_known_by_their_text(
    codes: dict[int, str], lines: dict[int, set[int]]
):
    assert diagonals_of(codes) == lines


def lengths(reads: str, *, product: str = "bmm") -> Analysis:
    """Steps that multiply all pairs of points, and read some of what they get."""
    codes = {3: "pairs = torch.bmm(x, x.mT)", 4: reads}
    steps = Steps()
    for step in range(STEPS):
        steps.launch("linear", Phase.FORWARD, us=3000)
        with steps.within("aten::matmul", 10 * step):
            steps.launch(product, Phase.FORWARD, GEMM)
        with steps.within("aten::index", 10 * step + 1):
            steps.launch("gather", Phase.FORWARD, us=10)
        with steps.within("aten::sum", 10 * step + 2):
            steps.launch("sum", Phase.FORWARD, us=10)
        with steps.within(ENGINE + "IndexBackward0", 10 * step + 1):
            steps.launch("index_put", Phase.BACKWARD, us=20)
        with steps.within(ENGINE + "BmmBackward0", 10 * step):
            steps.launch("bmm_backward", Phase.BACKWARD, GEMM, 600)
        steps.end_step()
    analysis = steps.analysis(matmul=at(3, "matmul"), index=at(4, "index"))
    positions = tuple(Position(None, 0, line, code=code) for line, code in codes.items())
    functions = (Function("/model.py", "forward"),)
    python = PythonLines(functions, (), positions, threads=(), clock=(), end_ns=0)
    return replace(analysis, recording=replace(analysis.recording, python=python))


def test_a_product_whose_diagonal_is_read_costs_what_it_takes_with_its_backward():
    found = only(discarded_work.RULE, lengths("return pairs[:, at, at]"))
    assert found.est_saving_ns == pytest.approx((300 + 10 + 20 + 600) * US, rel=0.01)
    assert (found.location.line, found.confidence.value) == (3, "upper_bound")


def test_pairs_that_are_read_and_products_with_a_vector_are_needed():
    assert is_silent(discarded_work.RULE, lengths("return pairs[:, at, others]"))
    assert is_silent(discarded_work.RULE, lengths("return pairs.diag()", product="mv"))


@pytest.mark.parametrize(
    ("made", "is_hessian"),
    [
        ("vmap(jacrev(jacrev(f)))(x)", True),
        ("torch.func.vmap(torch.func.hessian(f))(x)", True),
        ("jacfwd(jacrev(f))(x)", True),
        ("hessian(f)(x)", True),
        ("torch.autograd.functional.hessian(f, x)", True),
        ("vmap(jacrev(f))(x)", False),
        ("hessian(f)", False),
        ("f(x)", False),
    ],
)
def test_a_hessian_is_known_by_the_text_of_what_it_is_called_by(made: str, is_hessian: bool):
    codes = {3: f"second = {made}", 4: "return second.diagonal(dim1=-2, dim2=-1).sum(-1)"}
    assert hessians_of(codes) == ({3: {4}} if is_hessian else {})
    assert hessians_of(codes | {5: "return second.sum()"}) == {}


def test_a_hessian_whose_trace_is_read_costs_half_of_what_it_takes():
    steps, codes = Steps(), {3: "h = hessian(f)(x)", 4: "return h.trace()"}
    for _ in range(STEPS):
        steps.launch("linear", Phase.FORWARD, us=3000)
        for phase in (Phase.FORWARD, Phase.BACKWARD):
            steps.launch("mm", phase, GEMM)
        steps.launch("trace", Phase.FORWARD, us=20)
        steps.end_step()
    stacks = {line: (Frame("/model.py", line, "forward", code),) for line, code in codes.items()}
    inner = (*stacks[3], Frame("/model.py", 9, "f", "x @ w"))
    analysis = steps.analysis(mm=at(9, "mm", stack=inner), trace=at(4, "trace", stack=stacks[4]))
    positions = tuple(Position(None, 0, line, code=code) for line, code in codes.items())
    functions = (Function("/model.py", "forward"),)
    python = PythonLines(functions, (), positions, threads=(), clock=(), end_ns=0)
    recording = replace(analysis.recording, python=python)
    found = only(discarded_work.RULE, replace(analysis, recording=recording))
    assert found.est_saving_ns == pytest.approx((300 + 300 + 20) * US / 2, rel=0.01)
    assert (found.location.line, found.confidence.value) == (3, "estimated")
