"""DDP has equal layers compiled bucket by bucket, to equal graphs: each call has its own layers.

Data flow is the truth: a forward runs the layers in order, a backward in the other order.
"""

from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import profiler_ext
from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.profiling import switch
from profiler_ext.sessions.session import Session
from profiler_ext.torch_compat import points
from profiler_ext.torch_compat.calling import Caller, KnownCalls
from profiler_ext.torch_compat.patches import installed
from tests.compiling import capture, twice

LAYERS = 4
BUCKET_BYTES = 16 * 16 * 4  # the weight of a layer

# What DDPOptimizer and Dynamo warn of themselves.
pytestmark = pytest.mark.filterwarnings("ignore")


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(16, 16, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(x)  # a library call, which needs no C++ compiler


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process group of this process alone, whose first bucket is as small as the others."""
    monkeypatch.setattr(dist, "_DEFAULT_FIRST_BUCKET_BYTES", BUCKET_BYTES)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def training() -> Callable[[], list[float]]:
    """Return a step of two batches, the gradients of the first not yet reduced; it tells losses."""
    torch.manual_seed(0)
    parallel = DistributedDataParallel(Net(), bucket_cap_mb=BUCKET_BYTES / 2**20)
    compiled = torch.compile(parallel)

    def step() -> list[float]:
        losses = []
        for is_last in (False, True):
            parallel.require_backward_grad_sync = is_last
            loss = compiled(torch.ones(4, 16)).sum()
            loss.backward()
            losses.append(loss.item())
        return [*losses, *(float(p.grad.sum()) for p in parallel.parameters())]

    return step


def recorded(step: Callable[[], list[float]], steps: int = 1) -> tuple[Session, list[float]]:
    """Record steps."""
    with profiler_ext.profile() as prof:
        for _ in range(steps):
            found = step()
            prof.step()
    return prof.session, found


def layers_in_order(session: Session) -> dict[str, list[str]]:
    """Return for each phase the layers whose products ran, in order, each run once."""
    parts = session.attribution().merge(session.launches()[["launch", "start_ns"]], on="launch")
    products = parts[parts.aten_op == "aten.mm.default"].sort_values("start_ns")
    assert products.module.str.match(r"layers\.\d\.up$").all()
    return {
        phase: [layer for layer, _ in groupby(own.module.str.rpartition(".")[0])]
        for phase, own in products.groupby("phase")
    }


EXPECTED = {
    "forward": [f"layers.{at}" for at in range(LAYERS)],
    "backward": [f"layers.{at}" for at in reversed(range(LAYERS))],
}


@pytest.mark.parametrize("caches", [True, False])
def test_each_call_of_equal_buckets_has_its_own_layers(
    fresh_torch: Path, ranks: None, caches: bool
) -> None:
    profiler_ext.enable(strict=True)
    with torch._inductor.config.patch(fx_graph_cache=caches):
        step = training()
        step()
        session, _ = recorded(step)
    session.assert_coverage(1.0)
    graphs = session.graphs()
    assert layers_in_order(session) == {phase: 2 * run for phase, run in EXPECTED.items()}
    assert graphs.compile_id.nunique() == 1
    if caches:
        assert graphs.key.nunique() < len(graphs)


def test_a_bucket_that_is_compiled_while_recording_is_known_at_its_first_call(
    fresh_torch: Path, ranks: None
) -> None:
    profiler_ext.enable(strict=True)
    session, _ = recorded(training(), steps=2)
    assert layers_in_order(session) == {phase: 4 * run for phase, run in EXPECTED.items()}


def test_torch_itself_asks_autograds_cache_for_no_bucket_and_the_table_says_so(
    fresh_torch: Path, ranks: None
) -> None:
    def bypassed() -> int:
        found = dict(torch._dynamo.utils.counters["aot_autograd"])
        torch._dynamo.utils.counters.clear()
        return found["autograd_cache_bypass"]

    step = training()
    without = (step(), step(), bypassed())
    torch._dynamo.reset()
    profiler_ext.enable(strict=True)
    step = training()
    first, (session, second) = step(), recorded(step)
    assert (first, second, bypassed()) == without
    found = session.graphs().cache_detail.str.partition("AOTAutograd's cache: ")[2]
    assert set(found) == {"bypass (Won't cache a graph with fakify_first_call enabled)"}


def test_an_artifact_that_became_ready_twice_tells_nothing(fresh_torch: Path) -> None:
    artifacts: list[Any] = []

    def seen(call: Observed) -> Observation:
        artifacts.append(call["self"])
        yield

    profiler_ext.enable(strict=True)
    with installed([(points.ARTIFACT_CALL, seen)], Guard(strict=True)):
        torch.compile(twice)(torch.ones(4, 4), torch.ones(4, 4))
    [artifact] = artifacts
    assert (switch.graph_of(artifact), switch.graph_of(object())) == (0, None)
    known, register = KnownCalls(), capture()._registry.register
    known.keep(artifact, Caller(None, 0, (lambda: None).__code__), None, "graph 0")
    register(artifact, is_backward=False, is_replayed=False, started_ns=0)
    assert switch.graph_of(artifact) is None
    assert known._known == {}
