"""A region that is traced once stands, at each call, where that call is and on its modules."""

import importlib.util
import linecache
from collections.abc import Callable

import pytest
import torch

import profiler_ext
from profiler_ext.records.provenance import FxNode
from profiler_ext.records.vocabulary import CacheState
from tests.capture.regions import (
    Net,
    all_blocks,
    checkpointed,
    crossed,
    held_functions,
    never_used,
    of_another_class,
    of_functions,
    of_partial_functions,
    of_swapped_functions,
    regions_in_regions,
    without_parameters,
)
from tests.compiling import capture

COPIES = pytest.mark.skipif(
    importlib.util.find_spec("torch._dynamo.variables.invoke_subgraph") is None,
    reason="this torch traces each call of a region, and its lines are known",
)

INNER = "return x @ self.weight"
OWN = "return x @ x"
OTHER = "z = x @ x"


def places(called: Callable[[Net, torch.Tensor], torch.Tensor]) -> list[tuple[str, ...]]:
    """Return the innermost line of each product, and its modules, of the forward and in order."""
    forward, _ = trained(called)
    return [(line(node, -1), *(m.path for m in node.lineage.modules)) for node in forward]


def trained(called: Callable[[Net, torch.Tensor], torch.Tensor]) -> list[list[FxNode]]:
    profiler_ext.enable(strict=True)
    x = torch.ones(8, 8, requires_grad=True)
    torch.compile(Net(called), fullgraph=True)(x).sum().backward()
    return [[n for n in g.nodes if n.target == "aten.mm.default"] for g in capture().graphs]


def line(node: FxNode, at: int) -> str:
    frame = node.lineage.stack[at]
    return linecache.getline(frame.file, frame.line).strip()


@pytest.mark.usefixtures("fresh_torch")
def test_a_region_that_is_a_forward_runs_on_the_module_of_each_call() -> None:
    reported = [
        place
        for block in ("blocks.0", "blocks.1", "blocks.2")
        for place in ((INNER, block, f"{block}.inner"), ("return y @ y", block))
    ]
    assert places(all_blocks) == reported


@pytest.mark.usefixtures("fresh_torch")
def test_a_region_of_two_modules_runs_on_those_that_each_call_passes() -> None:
    reported = [(INNER, f"blocks.{number}.inner") for number in (0, 1, 2, 1, 1, 0)]
    assert places(crossed) == reported


@COPIES
@pytest.mark.usefixtures("fresh_torch")
def test_of_a_module_without_parameters_another_call_has_those_around_it() -> None:
    square = "return x @ x"
    first = [(INNER, "blocks.0.inner"), (square, "squares.0")]
    assert places(without_parameters) == [*first, (INNER, "blocks.1.inner"), (square, "")]


@COPIES
@pytest.mark.usefixtures("fresh_torch")
def test_of_a_module_of_another_class_torch_traced_no_line_and_the_call_stands() -> None:
    square, call = "return x @ x", "return on_two(net.other, net.squares[0], x)"
    first = [(INNER, "blocks.0.inner"), (square, "squares.0")]
    assert places(of_another_class) == [*first, (call, ""), (square, "")]


@pytest.mark.usefixtures("fresh_torch")
def test_a_region_stands_at_the_line_of_each_call_forward_and_backward() -> None:
    forward, backward = trained(crossed)
    lines = [
        "x = on_two(net.blocks[0].inner, net.blocks[1].inner, x)",
        "x = on_two(net.blocks[2].inner, net.blocks[1].inner, x)",
        "return on_two(net.blocks[1].inner, net.blocks[0].inner, x)",
    ]
    assert [line(node, -3) for node in forward] == [each for each in lines for _ in range(2)]
    by_name = {node.lineage.joint_name: node.lineage.stack for node in forward}
    linked = [by_name[node.lineage.forward_node or ""] for node in backward]
    assert linked == [node.lineage.stack for node in backward]
    assert len(linked) == 2 * len(forward)


@pytest.mark.usefixtures("fresh_torch")
def test_a_graph_that_only_calls_regions_is_captured() -> None:
    profiler_ext.enable(strict=True)
    torch.compile(Net(all_blocks), fullgraph=True)(torch.ones(8, 8, requires_grad=True))
    assert [graph.gaps for graph in capture().graphs] == [()]


def lines(called: Callable[[Net, torch.Tensor], torch.Tensor]) -> list[str]:
    """Return the innermost line of each product of the forward, in order."""
    return [line(node, -1) for node in trained(called)[0]]


@pytest.mark.usefixtures("fresh_torch")
def test_a_region_that_is_passed_another_function_has_the_lines_of_that_function() -> None:
    assert lines(of_functions) == [OWN, OWN, OTHER, OTHER, OWN, OWN]


@pytest.mark.usefixtures("fresh_torch")
def test_partial_functions_and_lambdas_have_their_own_lines() -> None:
    a_lambda = "return twice(lambda x: x @ x, x)"
    assert lines(of_partial_functions) == [OWN, OWN, OTHER, OTHER, a_lambda, a_lambda]


@COPIES
@pytest.mark.usefixtures("fresh_torch")
def test_a_call_that_may_be_alike_to_two_others_stands_as_far_as_they_agree() -> None:
    after, both = "return y @ self.weight", "y = self.function(x + self.weight)"
    reported = [place[0] for place in places(held_functions)]
    assert reported == [OWN, after, OTHER, after, both, after, both, after]


@pytest.mark.usefixtures("fresh_torch")
def test_regions_in_regions_have_the_lines_of_the_calls_around_them() -> None:
    forward = trained(regions_in_regions)[0]
    assert [line(node, 1) for node in forward] == [
        *["x = within(product, x)"] * 3,
        *["x = within(same_product, x)"] * 3,
        *["return also_within(x)"] * 4,
    ]
    after = "return y @ y"
    assert [line(node, -1) for node in forward] == [
        OWN,
        OWN,
        after,
        OTHER,
        OTHER,
        after,
        *[OWN] * 4,
    ]
    twice_each = ["x = twice(product, x) + 1"] * 2 + ["return twice(product, x)"] * 2
    assert [line(node, 2) for node in forward[-4:]] == twice_each


@pytest.mark.usefixtures("fresh_torch")
def test_a_checkpointed_region_runs_on_the_module_of_each_call() -> None:
    reported = [modules[0] for _, *modules in places(checkpointed)]
    assert reported == ["blocks.0", "blocks.0", "blocks.1", "blocks.1", "blocks.2", "blocks.2"]


@pytest.mark.usefixtures("fresh_torch")
def test_a_region_whose_first_call_is_used_by_none_has_the_lines_of_the_second() -> None:
    assert lines(never_used) == [OTHER, OTHER]


@pytest.mark.usefixtures("fresh_torch")
def test_from_a_cache_each_call_has_its_own_lines_also_where_functions_were_swapped() -> None:
    reported = [lines(of_functions)]
    for again in (of_functions, of_swapped_functions):
        torch.compiler.reset()
        seen = len(capture().graphs)
        trained(again)
        forward = capture().graphs[seen].nodes
        reported.append([line(n, -1) for n in forward if n.target == "aten.mm.default"])
        assert capture().graphs[seen].cache_state is not CacheState.MISS
    one, other = [OWN, OWN, OTHER, OTHER, OWN, OWN], [OTHER, OTHER, OWN, OWN, OTHER, OTHER]
    assert reported == [one, one, other]
