"""A mechanism that fails costs what it alone gives, with a named gap, and no line that others had.

One training step is compiled, and each of its graphs sealed once more with each mechanism failing
that is at work there; for each that is at work before, the step is compiled once more. What is then
said of a node or a call site is what was said without the failure, or nothing. No C++ is compiled:
nobody asks what the step computes.
"""

from __future__ import annotations

import dataclasses
import importlib
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from typing import Any, NamedTuple

import pytest
import torch
import torch._functorch.config
import torch._inductor.config
from torch._inductor.async_compile import AsyncCompile

import profiler_ext
from profiler_ext.capture.graphs.compiles import Compiles
from profiler_ext.capture.hooks import artifacts
from profiler_ext.capture.lineage import order
from profiler_ext.capture.lineage.order import CONTRIBUTIONS
from profiler_ext.capture.traces import finders
from profiler_ext.errors import CaptureWarning
from profiler_ext.isolation.failures import Failure
from profiler_ext.isolation.guard import Guard
from profiler_ext.records.evidence import LineEvidence
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.provenance import GraphInstance, Provenance
from tests.compiling import capture

PLACE = frozenset(
    {"original_aten", "seq_nr", "stack", "modules", "source_fns", "mechanism", "is_gradient_acc"}
)
LINK = frozenset({"forward_node", "forward_evidence"})
NAMES = LINK | {"joint_name"}
WORK = frozenset({"bytes_moved", "flops"})
ALL = frozenset({*PLACE, *LINK, "partitioner_tag", "autograd_backward", "evidence", "joint_name"})


class Layer(torch.nn.Module):
    """Mutates a buffer, adds up gradients, and hooks on one."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(x.detach().sum(0))
        y = self.linear(x.view(-1, 8))
        y.register_hook(lambda gradient: gradient * 2)
        return y.sin() * y


class Model(torch.nn.Module):
    """Has a branch, whose backward has bodies, and a gradient that the function takes itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = Layer()

    def forward(self, x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
        x = self.layer(x)
        x = torch.cond(flag, lambda a: a.sin() * 2, lambda a: a.cos() * 3, (x,))
        return torch.func.grad(lambda a: (a**3).sum())(x) + x


def train() -> tuple[GraphInstance, ...]:
    """Compile and run the step anew; return its forward and its backward graph."""
    torch._dynamo.reset()
    profiler_ext.disable()
    profiler_ext.enable()
    torch.manual_seed(0)
    x = torch.randn(4, 8, requires_grad=True)
    torch.compile(Model())(x, torch.tensor(True)).sum().backward()
    return capture().graphs


@pytest.fixture(scope="module")
def compiling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compile graphs each time anew, and none of their C++."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(AsyncCompile, "cpp_pybinding", lambda *_, **__: lambda *_: None)
        without = torch._functorch.config.patch(enable_autograd_cache=False)
        with torch._inductor.config.patch(fx_graph_cache=False), without:
            yield
    profiler_ext.disable()
    torch._dynamo.reset()


class Sealed(NamedTuple):
    """A step whose graphs were sealed several times.

    Attributes:
        sound: its graphs.
        failing: for each mechanism that failed as they were sealed, their records.
        failures: what failed then.
    """

    sound: tuple[GraphInstance, ...]
    failing: dict[str, list[Provenance]]
    failures: dict[str, tuple[Failure, ...]]


@pytest.fixture(scope="module")
def step(compiling: None) -> Sealed:
    failing, failures = defaultdict[str, list[Provenance]](list), dict[str, Any]()

    def seal(compiles: Compiles, *rest: Any, original: Any = artifacts.sealing.seal) -> Provenance:
        for place in (*RULES, *SEALING):
            guard = Guard()
            with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
                warnings.simplefilter("ignore", CaptureWarning)
                plant(patch, place)
                patch.setattr(compiles, "try_run", guard.try_run)
                failing[place].append(original(compiles, *rest[:-1]))
            failures[place] = (*failures.get(place, ()), *guard.failures)
        return original(compiles, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(artifacts.sealing, "seal", seal)
        sound = train()
    assert capture().gaps == ()
    assert [graph.is_backward for graph in sound] == [False, True]
    return Sealed(sound, failing, failures)


def _fail(*_: Any, **__: Any) -> Any:
    raise RuntimeError("planted")


def plant(patch: pytest.MonkeyPatch, place: str) -> None:
    """Have a function of the package fail, wherever it is bound: ``module:qualified name``."""
    module, _, names = place.partition(":")
    function = importlib.import_module(f"profiler_ext.{module}")
    for name in names.split("."):
        function = getattr(function, name)
    patch.setattr(function, "__code__", _fail.__code__)


RULES = {
    f"{rule.__module__.removeprefix('profiler_ext.')}:{rule.__name__}": PLACE
    for rule in order.ORDER
} | {
    "capture.lineage.node_rules:own_metadata": ALL,
    "capture.lineage.node_rules:modules_of_the_user": {"modules"},
    "capture.lineage.links:joint_graph": NAMES,
    "capture.lineage.nested_graphs:called_graph": NAMES,
    "capture.lineage.nested_graphs:body_of_call": PLACE | LINK,
    "capture.lineage.node_rules:replaced_by_pattern": PLACE | LINK,
}
"""The rules, each with what nodes may lose by it."""
SEALING = {
    "capture.graphs.kernel_cost:weights": {"weights"},
    "capture.graphs.kernel_cost:all_operations": {"flops"},
    "capture.graphs.kernel_cost:moved_bytes": {"bytes_moved"},
    "capture.graphs.kernel_cost:counted_operations": {"flops", "weights"},
    "capture.graphs.sealing:contradicted": set[str](),
    "recall.wrapper_calls:wrapper_calls": set[str](),
    "capture.graphs.sealing:_contradictions": set[str](),
    "capture.graphs.sealing:_with_partial_sums": set[str](),
    "capture.graphs.fx_nodes:split_buckets": set[str](),
    "capture.graphs.fx_nodes:describe_inputs": set[str](),
    "capture.graphs.fx_nodes:describe_nested": set[str](),
}
"""The others at work when a graph is sealed, each with what call sites may lose by it."""
FINDERS = {
    "capture.lineage.links:follow_replaced": PLACE | LINK,  # links lead to the bodies of calls
    "capture.lineage.gradients:find_gradients": PLACE | LINK,
    "capture.lineage.functionalization:find_replayed_views": PLACE | LINK,
    "capture.lineage.functionalization:find_mutations": PLACE,
    "capture.lineage.nested_graphs:find_bodies": PLACE | LINK,
    "capture.traces.replacements:Watch.replaced": PLACE | LINK,
    "capture.traces.replacements:Watch.overwritten_nodes": PLACE | LINK,
    "capture.traces.dynamo_graphs:_modules": PLACE,  # and which call a region's nodes are of
    "capture.traces.dynamo_graphs:_runs": PLACE,
}
"""What looks at a graph before, each with what nodes may lose by it."""
OF_NOTHING_HERE = (
    "capture.lineage.joint:_random",
    "capture.lineage.joint:_outputs",
    "capture.traces.dynamo_graphs:_inlined",
    "capture.traces.dynamo_graphs:_arguments",
)
"""The same, where this step has nothing that they find."""
NODES, BUFFERS = {"nodes", "weights"}, {"reads", "writes", "values"}
SITES = {
    ("capture.graphs.call_sites:exact_nodes",): NODES | BUFFERS | WORK,
    ("capture.graphs.call_sites:extern_site",): NODES | BUFFERS | WORK,
    ("capture.graphs.call_sites:_values",): {"values"},
    ("torch_compat.traffic:moved_bytes", "torch_compat.traffic:storing"): {"weights"} | WORK,
}
TOTAL = ("own_metadata", "overwritten_nodes")
"""Without these no line is known: what torch says, and of which nodes a pass overwrote that."""
OF_STACK = {"mechanism", "evidence"}
"""What tells how a stack is known goes with it."""
OF_COMPILE = {"seq_nr", "joint"}
"""Numbers that differ from one compile to the next."""


def lost_fields(before: Any, after: Any) -> set[str]:
    """Return the fields that say nothing any more, or shares that are made of less."""
    pairs = {
        field.name: (getattr(before, field.name), getattr(after, field.name))
        for field in dataclasses.fields(before)
    }
    changed = {name: now for name, (was, now) in pairs.items() if was != now}
    lost = {name for name, now in changed.items() if not now or now == LineEvidence.ABSENT}
    lost |= changed.keys() & {"weights"}
    assert changed.keys() - lost - OF_COMPILE == set(), {n: pairs[n] for n in changed.keys() - lost}
    return lost


def assert_nodes(
    place: str, records: Sequence[Provenance], sound: Sequence[GraphInstance], may: Set[str]
) -> None:
    """Assert that the nodes lost no more than they may, and that most have their lines."""
    lost: list[set[str]] = []
    for record, graph in zip(records, sound, strict=True):
        before = {node.name: node.lineage for node in graph.record.nodes}
        lost += [lost_fields(before[node.name], node.lineage) for node in record.nodes]
    assert set().union(*lost) <= may | OF_STACK
    without = sum("stack" in each for each in lost)
    assert without > 0.9 * len(lost) if place.endswith(TOTAL) else without < len(lost) / 2


def assert_sites(records: Sequence[Provenance], sound: Sequence[GraphInstance], may: Set[str]):
    """Assert that the call sites lost no more than they may, and not all of them their nodes."""
    for record, graph in zip(records, sound, strict=True):
        pairs = list(zip(graph.call_sites, record.call_sites, strict=True))
        assert set().union(*(lost_fields(*pair) for pair in pairs)) <= may
        assert any(site.nodes for site in record.call_sites)


def failed(*places: str) -> list[Provenance]:
    """Return the records of a step in which mechanisms failed, each with a gap that says so."""
    with pytest.MonkeyPatch.context() as patch:
        for place in places:
            plant(patch, place)
        with pytest.warns(CaptureWarning, match="planted"):
            graphs = train()
    assert {gap.reason for gap in capture().gaps} == {GapReason.PARTLY_CAPTURED}
    assert all("planted; lost: " in gap.detail for gap in capture().gaps)
    assert len(capture().gaps) >= len(places)
    for graph in graphs:
        assert set(capture().gaps) == set(graph.gaps) >= set(graph.record.gaps) != set()
    return [graph.record for graph in graphs]


@pytest.mark.parametrize("place", RULES)
def test_a_rule_that_fails_costs_what_it_gives_of_the_nodes_that_it_may_know(place, step):
    assert {failure.hook for failure in step.failures[place]} == {place.rpartition(":")[2]}
    assert_nodes(place, step.failing[place], step.sound, RULES[place])
    assert_sites(step.failing[place], step.sound, set())


@pytest.mark.parametrize("place", SEALING)
def test_what_fails_when_a_graph_is_sealed_costs_no_node_its_line(place, step):
    assert {failure.lost for failure in step.failures[place]} != set()
    assert_nodes(place, step.failing[place], step.sound, set())
    assert_sites(step.failing[place], step.sound, SEALING[place])


@pytest.mark.parametrize("place", FINDERS)
def test_what_is_not_found_in_a_graph_costs_what_is_reported_by_it(place, step):
    records = failed(place)
    assert_nodes(place, records, step.sound, FINDERS[place])
    assert_sites(records, step.sound, set())


def test_what_finds_nothing_in_a_step_costs_it_nothing(step):
    records = failed(*OF_NOTHING_HERE)
    assert_nodes("", records, step.sound, set())
    assert_sites(records, step.sound, set())


@pytest.mark.parametrize("places", SITES, ids=lambda places: places[0])
def test_what_fails_at_a_call_site_costs_no_node_its_line(places, step):
    records = failed(*places)
    assert_nodes("", records, step.sound, set())
    assert_sites(records, step.sound, SITES[places])


def test_each_rule_says_what_it_gives_and_each_finding_is_read_by_name() -> None:
    rules = {rule.__name__ for rule in (*order.ORDER, *order.COPIES)}
    assert set(CONTRIBUTIONS) == rules
    read = {name for each in CONTRIBUTIONS.values() for name in each.findings}
    assert read | {"links", "replaced", "creations", "tensors"} == set(finders.FINDING_LABELS)
    assert set(finders.DEPENDENTS) < set(finders.FINDING_LABELS)
