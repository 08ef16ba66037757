"""However a backward comes to be compiled, it leads to the forward, and its phase is right.

The functions are matrix products, library calls which need no C++ compiler.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch._dynamo
import torch.distributed
from torch._dynamo.backends.common import aot_autograd
from torch.fx.passes.regional_inductor import regional_inductor

import profiler_ext
from profiler_ext.attribution.enclosing import CallContext
from profiler_ext.attribution.phases import node_phase
from profiler_ext.profiling import switch
from profiler_ext.torch_compat import behaviour
from tests.compiling import TWICE_LINES, fresh_torch, torch, twice

__all__ = ["fresh_torch"]
pytestmark = pytest.mark.usefixtures("fresh_torch")
torchs_own_warnings = pytest.mark.filterwarnings("ignore")

Row = tuple[str, str, str | None, int]
FIRST, SECOND = TWICE_LINES


def given() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(8, 8, requires_grad=True), torch.randn(8, 8)


def products(target: str = "aten.mm.default") -> list[Row]:
    """Return each matrix product that was compiled: name, phase, forward node and line."""
    capture = switch.current()
    assert capture is not None
    return [
        (
            node.name,
            node_phase(node, graph, CallContext(), in_torch_optim=False).value,
            node.lineage.forward_node,
            node.lineage.stack[-1].line,
        )
        for graph in capture.graphs
        for node in graph.nodes
        if node.target == target
    ]


TWICE = [
    ("mm", "forward", None, FIRST),
    ("mm_1", "forward", None, SECOND),
    ("mm_2", "backward", "mm_1", SECOND),
    ("mm_3", "backward", "mm", FIRST),
]


def step_of_tensors(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    product = twice(a, b)
    return product.detach(), torch.autograd.grad(product, a, b)[0]


def step_of_functions(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    product, backward = torch.func.vjp(lambda a: twice(a, b), a)
    return product, backward(b)[0]


def updated(
    a: torch.Tensor, b: torch.Tensor, momentum: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    product, backward = torch.func.vjp(lambda a: twice(a, b), a)
    return product, momentum + backward(b)[0]


def test_a_product_of_a_gradient_that_is_merged_with_the_update_is_the_gradients() -> None:
    profiler_ext.enable(strict=True)
    a, b = given()
    torch.compile(updated, fullgraph=True)(a.detach(), b, b)
    merged = [row for row in products("aten.addmm.default") if row[1] != "forward"]
    assert merged == [("addmm_default", "backward", "mm", FIRST)]
    assert len(products("aten.addmm.default")) == len(merged)


def tagged() -> list[bool | None]:
    """Return torch's backward tag of each matrix product that was compiled."""
    capture = switch.current()
    assert capture is not None
    nodes = [node for graph in capture.graphs for node in graph.nodes]
    return [node.lineage.autograd_backward for node in nodes if node.target == "aten.mm.default"]


def test_a_gradient_of_functions_in_the_same_graph_is_backward_work_of_the_forwards_line() -> None:
    profiler_ext.enable(strict=True)
    a, b = given()
    torch.compile(step_of_functions, fullgraph=True)(a.detach(), b)
    assert products() == TWICE
    assert tagged() == [False if behaviour.TAGS_BACKWARD_NODES else None] * 4


@pytest.mark.skipif(not behaviour.TAGS_BACKWARD_NODES, reason="this torch traces no autograd.grad")
def test_a_gradient_of_tensors_in_the_same_graph_is_backward_work_and_torch_tags_it() -> None:
    profiler_ext.enable(strict=True)
    with torch._dynamo.config.patch(trace_autograd_ops=True):
        torch.compile(step_of_tensors, fullgraph=True)(*given())
    assert products() == TWICE
    assert tagged() == [False, False, True, True]


class Twice(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        first = a @ b
        return first @ b


@torchs_own_warnings
def test_what_was_exported_without_dynamo_leads_to_the_models_lines() -> None:
    exported = torch.export.export(Twice(), given(), strict=False).module()
    profiler_ext.enable(strict=True)
    torch.compile(exported)(*given()).sum().backward()
    shift = Twice.forward.__code__.co_firstlineno + 1 - FIRST
    assert products() == [(*row[:3], row[3] + shift) for row in TWICE]


def region(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    outside = a.sin()
    with torch.fx.traceback.annotate({"compile_with_inductor": 0}):
        inside = outside @ b
    return inside.cos()


@torchs_own_warnings
def test_a_region_that_is_compiled_by_itself_keeps_its_phases_links_and_lines() -> None:
    profiler_ext.enable(strict=True)
    backend = aot_autograd(fw_compiler=regional_inductor, bw_compiler=regional_inductor)
    torch.compile(region, backend=backend, fullgraph=True)(*given()).sum().backward()
    line = region.__code__.co_firstlineno + 3
    assert products() == [("mm", "forward", None, line), ("mm", "backward", "mm", line)]


def test_forwards_of_several_threads_have_their_own_numbers_and_links() -> None:
    profiler_ext.enable(strict=True)
    outputs: list[torch.Tensor] = []
    for _ in range(2):
        torch._dynamo.reset()
        work = threading.Thread(target=lambda: outputs.append(torch.compile(twice)(*given())))
        work.start()
        work.join()
    for output in outputs:
        output.sum().backward()
    assert sorted(products()) == sorted(TWICE * 2)


@pytest.fixture
def one_rank() -> Iterator[Any]:
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    yield torch.distributed.init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


@torchs_own_warnings
def test_distributed_tensors_keep_the_links_of_what_they_hold(one_rank: Any) -> None:
    from torch.distributed.tensor import Replicate, distribute_tensor

    profiler_ext.enable(strict=True)
    a, b = (distribute_tensor(value.detach(), one_rank, [Replicate()]) for value in given())
    torch.compile(twice)(a.requires_grad_(), b).to_local().sum().backward()
    # What torch calls the backward's nodes is another thing in each torch.
    assert [row[1:] for row in products()] == [row[1:] for row in TWICE]


def other_products(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    first = b @ a
    return b @ first


def test_a_function_compiled_after_a_reset_is_not_taken_for_the_one_before_it() -> None:
    profiler_ext.enable(strict=True)
    with torch._functorch.config.patch(enable_autograd_cache=False):
        for function in (other_products, twice):
            torch._dynamo.reset()
            torch.compile(function)(*given()).sum().backward()
    assert products()[4:] == TWICE
