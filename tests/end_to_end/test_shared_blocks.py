"""Under compiled autograd each kernel has the block whose forward it is the backward of.

The blocks are compiled one by one and share one forward, so one backward graph is copied for
each of them. Which block a product is of is seen in the tensors that it really works on.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo.compiled_autograd
from torch import nn
from torch.utils.checkpoint import checkpoint

import profiler_ext
from profiler_ext.sessions.session import Session

# What Dynamo warns of itself when it traces from a value that is no leaf.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),
]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


class Net(nn.Module):
    """Blocks that share one forward, and which of them read each tensor in this step."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.readers: dict[int, set[int]] = {}
        for block in self.blocks:
            block.compile()

    def run(self, at: int, x: torch.Tensor) -> torch.Tensor:
        self.readers.setdefault(x.data_ptr(), set()).add(at)
        return self.blocks[at](x)


Forward = Callable[[Net, torch.Tensor, int], torch.Tensor]


def chained(net: Net, x: torch.Tensor, number: int) -> torch.Tensor:
    for at in range(4):
        x = net.run(at, x)
    return x


def branched(net: Net, x: torch.Tensor, number: int) -> torch.Tensor:
    """Autograd's graph is the same whichever branch runs first."""
    x = net.run(0, x)
    branches = {at: net.run(at, x) for at in ((1, 2), (2, 1))[number % 2]}
    return net.run(3, branches[1] + branches[2])


def accumulated(net: Net, x: torch.Tensor, number: int) -> torch.Tensor:
    """One backward of two forwards, with one between them that has no backward."""
    first = chained(net, x, number)
    with torch.no_grad():
        net.blocks[1](x)
    return first + net.run(3, net.run(0, x))


class Products:
    """Watches the products that run, and tells of which block each is."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int, int]] = []

    def watched(self, product: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: torch.Tensor, out: torch.Tensor, **scales: float) -> Any:
            left, right = args[-2:]
            self.calls.append((left.data_ptr(), right.data_ptr(), out.data_ptr()))
            return product(*args, out=out, **scales)

        return watched

    def step(self, net: Net, forward: Forward, number: int) -> list[str]:
        """Train once; return the block of each product of the backward."""
        net.zero_grad(set_to_none=True)
        net.readers.clear()
        y = forward(net, torch.ones(8, 8, requires_grad=True), number)
        self.calls.clear()
        y.backward(torch.ones(8, 8))
        return [f"blocks.{_block(net, *call)}" for call in self.calls]


def _block(net: Net, left: int, right: int, out: int) -> int | None:
    """A product reads the weight; or it reads the block's input, and may write the gradient."""
    by_weight = {block.weight.data_ptr(): at for at, block in enumerate(net.blocks)}
    by_gradient = {block.weight.grad.data_ptr(): at for at, block in enumerate(net.blocks)}
    if right in by_weight:
        return by_weight[right]
    readers = net.readers[left]
    return min(readers) if len(readers) == 1 else by_gradient.get(out)


@pytest.fixture
def products(fresh_torch: Path, monkeypatch: pytest.MonkeyPatch) -> Products:
    from torch._inductor.select_algorithm import extern_kernels

    found = Products()
    for name in ("mm", "addmm"):
        monkeypatch.setattr(extern_kernels, name, found.watched(getattr(extern_kernels, name)))
    return found


def start_again() -> None:
    """Forget all but what lies in the cache, as a new process does."""
    profiler_ext.disable()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()  # earlier tests may hold what they compiled
    profiler_ext.enable(strict=True)


def profiled(products: Products, forward: Forward) -> tuple[Session, list[str]]:
    """Profile two steps; return the block of each product too."""
    net, expected = Net(), []
    with torch._dynamo.compiled_autograd._enable(torch.compile):
        products.step(net, forward, 0)
        with profiler_ext.profile() as prof:
            for number in range(2):
                expected += products.step(net, forward, number)
                prof.step()
    return prof.session, expected


def backward_modules(session: Session) -> list[str]:
    rows = session.attribution().merge(session.launches()[["launch", "kind"]], on="launch")
    return list(rows[(rows.phase == "backward") & (rows.kind == "extern")].module.fillna(""))


@pytest.mark.parametrize("forward", [chained, branched, accumulated])
@pytest.mark.parametrize(("starts", "state"), [(1, "miss"), (2, "fx_hit")])
def test_each_product_has_the_block_whose_tensors_it_works_on(
    products: Products, forward: Forward, starts: int, state: str
) -> None:
    for _ in range(starts):
        start_again()
        session, expected = profiled(products, forward)
    graphs = session.graphs().set_index("compile_id").cache_state
    assert set(graphs[graphs.index.str.startswith("!")]) == {state}
    assert set(expected) == {f"blocks.{at}" for at in range(4)}
    assert backward_modules(session) == expected


def test_branches_that_change_places_run_one_graph_in_one_order(products: Products) -> None:
    """So the order of the forwards does not tell which copy is of which."""
    start_again()
    session, expected = profiled(products, branched)
    assert expected[:8] == expected[8:]
    assert sum(each.startswith("!") for each in session.graphs().compile_id) == 1
    rows = session.attribution()
    assert backward_modules(session) == expected
    ran = list(rows[(rows.phase == "forward") & rows.line.notna()].module)
    assert ran == [f"blocks.{at}" for at in (0, 1, 2, 3, 0, 2, 1, 3)]


def test_a_sum_into_a_gradient_has_the_block_of_that_gradient(products: Products) -> None:
    start_again()
    net = Net()
    with torch._dynamo.compiled_autograd._enable(torch.compile):
        for _ in range(2):
            chained(net, torch.ones(8, 8, requires_grad=True), 0).backward(torch.ones(8, 8))
        with profiler_ext.profile() as prof:
            chained(net, torch.ones(8, 8, requires_grad=True), 0).backward(torch.ones(8, 8))
            prof.step()
    rows = prof.attribution()
    sums = rows[rows.phase == "gradient_accumulation"].module
    assert sorted(sums.fillna("")) == [f"blocks.{at}" for at in range(4)]


def test_what_a_checkpoint_runs_again_has_its_own_block(products: Products) -> None:
    def step() -> None:
        x = torch.ones(8, 8, requires_grad=True)
        for block in net.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        x.backward(torch.ones(8, 8))

    start_again()
    net = Net()
    with torch._dynamo.compiled_autograd._enable(torch.compile):
        step()
        with profiler_ext.profile() as prof:
            step()
            prof.step()
    rows = prof.attribution()
    again = rows[(rows.phase == "recompute") & rows.node.notna()].module
    assert list(again.fillna("?")) == [f"blocks.{at}" for at in (3, 2, 1, 0)]
