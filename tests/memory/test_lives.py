"""Why blocks live, on the CPU: sizes tell which value a block is, so who needs it is known."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
import torch
import torch.fx
import torch.nn.functional as F

import profiler_ext
from profiler_ext.memory.peak import AliveBlock, peaks_of
from profiler_ext.profiling import holders
from profiler_ext.records.memory import LifeEvidence, LifeReason, MemoryKind
from profiler_ext.records.provenance import is_view_op
from profiler_ext.sessions.session import Session
from tests import compiling

compile_fx = compiling.torch._inductor.compile_fx
ROWS = 127


class Net(torch.nn.Module):
    """Layers of prime widths; its output is the largest, so the peak is as the backward begins."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(31, 1009), torch.nn.Linear(1009, 509)
        self.norm = torch.nn.LayerNorm(509)
        self.c, self.d = torch.nn.Linear(509, 251), torch.nn.Linear(251, 4001)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rest = F.relu(self.c(self.norm(self.b(F.gelu(self.a(x))))))
        joined = torch.cat([rest, rest.sin()[:, :113]], 1)
        out: torch.Tensor = self.d(F.dropout(rest) * 2.0).tanh()
        return out, joined.exp().sum()


kept: list[torch.Tensor] = []


def trained(*, compiled: bool = False) -> Session:
    net = Net()
    run = torch.compile(net) if compiled else net
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=1)
    with profiler_ext.profile(schedule=schedule, strict=True, memory=True) as prof:
        for _ in range(3):
            out, rest = run(torch.randn(ROWS, 31))
            kept.append(out.detach()[:, :773].clone())
            (out.square().mean() + rest).backward()
            optimizer.step()
            optimizer.zero_grad()
            prof.step()
    kept.clear()
    return prof.session


@pytest.fixture(scope="module")
def eager() -> Iterator[Session]:
    yield trained()
    profiler_ext.disable()


def blocks(session: Session) -> tuple[AliveBlock, ...]:
    return peaks_of(session.analysis)[-1].blocks


def saved(session: Session) -> list[AliveBlock]:
    kinds = (MemoryKind.SAVED, MemoryKind.BATCH)
    return [each for each in blocks(session) if each.kind in kinds]


def needs(session: Session) -> Counter[tuple[int, str]]:
    """Return each size, in values of 4 bytes a row, with each that needs a block of it."""
    pairs = (
        (each.size_bytes, need.text) for each in saved(session) for need in each.life.needed_by
    )
    return Counter(pairs)


SAVED_BY_AUTOGRAD = (
    (31, "AddmmBackward0.mat1"),
    (1009, "GeluBackward0.self"),
    (1009, "AddmmBackward0.mat1"),
    (509, "NativeLayerNormBackward0.input"),
    (1, "NativeLayerNormBackward0.result1"),
    (1, "NativeLayerNormBackward0.result2"),
    (509, "AddmmBackward0.mat1"),
    (251, "ReluBackward0.result"),
    (251, "SinBackward0.self"),
    (364, "ExpBackward0.result"),
    (251, "MulBackward0.other"),  # the mask of the dropout
    (251, "AddmmBackward0.mat1"),
    (4001, "TanhBackward0.result"),
    (4001, "PowBackward0.self"),
)


def test_eager_blocks_are_needed_by_the_nodes_that_saved_them(eager: Session) -> None:
    # By the formulas of the derivatives (``tools/autograd/derivatives.yaml``)
    expected = Counter((4 * ROWS * values, name) for values, name in SAVED_BY_AUTOGRAD)
    expected[8, "MulBackward0.other"] += 1  # the number 2.0
    assert needs(eager) == expected
    assert {each.life.reason for each in saved(eager)} == {LifeReason.SAVED_TENSOR}
    assert {each.life.evidence for each in saved(eager)} == {LifeEvidence.SAVED_TENSOR}


def test_a_temporary_is_read_by_the_node_that_runs_at_the_peak(eager: Session) -> None:
    read_by = Counter(
        (each.size_bytes, need.name)
        for each in blocks(eager)
        if each.kind is MemoryKind.TEMPORARIES
        for need in each.life.needed_by
    )
    wide = 4 * ROWS * 4001
    assert read_by == {(wide, "PowBackward0"): 3, (wide, "TanhBackward0"): 1}


def test_what_a_list_of_the_program_keeps_has_its_name(eager: Session) -> None:
    held = [each for each in blocks(eager) if each.size_bytes == 4 * ROWS * 773]
    assert [each.life.reason for each in held] == [LifeReason.PYTHON] * 3
    assert {each.life.held_by for each in held} == {f"{__name__}.kept[{at}]" for at in range(3)}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Session, torch.fx.Graph]]:
    """Compile the net, and keep the backward graph that the partitioner made."""
    made: list[torch.fx.Graph] = []
    original = compile_fx.min_cut_rematerialization_partition

    def partition(*args: Any, **more: Any) -> Any:
        halves = original(*args, **more)
        made.append(copy.deepcopy(halves[1].graph))
        return halves

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(compile_fx, "min_cut_rematerialization_partition", partition)
        session = trained(compiled=True)
    yield session, made[-1]
    profiler_ext.disable()


def readers(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """Yield the nodes that read a value, through views."""
    for user in node.users:
        if is_view_op(str(user.target)):
            yield from readers(user)
        elif user.op != "output":
            yield user


@pytest.mark.whole
def test_a_compiled_forwards_values_are_needed_by_those_that_read_them(
    compiled: tuple[Session, torch.fx.Graph],
) -> None:
    session, backward = compiled
    expected = Counter[tuple[str, int, str]]()
    for node in backward.find_nodes(op="placeholder"):
        value = node.meta["val"]
        is_parameter = node.name.startswith("primals") and value.shape[0] != ROWS
        if not is_parameter and not node.name.startswith("tangents"):
            size = value.untyped_storage().nbytes()
            expected.update((node.name, size, user.name) for user in {*readers(node)})
    found = Counter(
        (each.life.saved_as, each.size_bytes, str(need.place.node))
        for each in saved(session)
        for need in each.life.needed_by
        if need.place.graph is not None
    )
    assert found == expected


class Holding:
    """Holds a tensor in each way that the collector of Python can see."""

    def __init__(self) -> None:
        self.attribute = torch.ones(3)
        self.table = {"key": [torch.ones(4)]}


def test_the_collector_names_attributes_containers_and_closures() -> None:
    holding, closed_over = Holding(), torch.ones(5)

    def reader() -> torch.Tensor:
        return closed_over

    tensors = [holding.attribute, holding.table["key"][0], closed_over]
    found = holders.Referrers([id(each) for each in tensors]).found()
    names = {each.tensor.numel(): each.name for each in found if "tensors" not in each.name}
    function = "test_the_collector_names_attributes_containers_and_closures.<locals>.reader"
    assert reader is not None
    assert names == {
        3: "Holding.attribute",
        4: "Holding.table['key'][0]",
        5: f"closed_over of {function}",
    }


def looked_at(value: object) -> tuple[int, int]:
    """How many containers a walk went into, and how many things in them it looked at."""
    walk = holders._Walk()
    assert not [*walk.tensors("value", value)]
    return len(walk._visited), walk._seen


def test_a_walk_over_what_holds_no_tensor_is_bounded() -> None:
    assert looked_at([*range(1_000)]) == looked_at([*range(1_000_000)]) == (1, 1_000)
    assert looked_at([[*range(1_000)] for _ in range(1_000)]) == (20, 20_000)
    assert looked_at([{} for _ in range(900)]) == looked_at(["text"] * 900) == (1, 900)


def test_a_walk_does_not_go_into_our_own_objects() -> None:
    ours = type("Ours", (), {"__module__": f"{profiler_ext.__name__}.made"})()
    ours.held = [[torch.ones(3)] for _ in range(900)]
    assert looked_at([ours]) == (1, 1)


def test_frames_of_a_test_runner_are_none_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def variables_of(frame: FrameType) -> Iterator[tuple[str, Any]]:
        read.append(frame.f_code.co_name)
        yield from ()

    def step() -> list[holders.Holder]:
        return [*holders.variables()]

    monkeypatch.setattr(holders, "_variables_of", variables_of)
    assert step() == []
    own = [each for each in read if each != "<module>"]  # of the script, which is pytest's
    assert own == ["step", "test_frames_of_a_test_runner_are_none_of_the_program"]
