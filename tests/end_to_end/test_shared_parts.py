"""Equal parts of a graph that a backend has compiled by themselves share an artifact or its record.

Data flow is the truth: a forward runs the layers in order, a backward in the other order.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch._functorch._aot_autograd import autograd_cache
from torch.fx.passes.split_module import split_module

import profiler_ext
from profiler_ext.sessions.session import Session

pytestmark = pytest.mark.filterwarnings("ignore")


@torch.library.custom_op("profiler_ext_parts::cut", mutates_args=())
def cut(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@cut.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


cut.register_autograd(lambda ctx, gradient: gradient)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(16, 16, bias=False)
        self.down = nn.Linear(16, 16, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.ops.profiler_ext_parts.cut(self.up(x))
        return self.down(x) @ x.T @ x  # library calls, which need no C++ compiler


class Net(nn.Module):
    """Layers that are held under a name, and run in an order."""

    def __init__(self, held: str = "layers", order: tuple[int, ...] = (0, 1, 2)) -> None:
        super().__init__()
        self.held, self.order = held, order
        setattr(self, held, nn.ModuleList(Layer() for _ in order))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        layers = getattr(self, self.held)
        for at in self.order:
            x = layers[at](x)
        return x


class Shared(BaseException):
    """An artifact of an equal part is there."""


class Pieces:
    """Compiles what lies between the cuts of a graph, as serving engines do."""

    def __init__(self, *, shares: bool) -> None:
        self.shares, self.shared = shares, 0
        self.artifacts: dict[str, Any] = {}

    def __call__(self, gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        at, part = 0, {}
        for node in gm.graph.nodes:
            if node.op not in ("placeholder", "output"):
                is_cut = "cut" in str(node.target)
                at += is_cut
                part[node] = at
                at += is_cut
        pieces = split_module(gm, None, part.__getitem__)
        for name, piece in list(pieces.named_children()):
            if not any("cut" in str(node.target) for node in piece.graph.nodes):
                given = [
                    n.meta["example_value"] for n in piece.graph.nodes if n.op == "placeholder"
                ]
                compiled = self.compiled(piece, given)
                delattr(pieces, name)
                pieces.__dict__[name] = compiled
        return pieces

    def compiled(self, piece: torch.fx.GraphModule, given: list[Any]) -> Callable[..., Any]:
        keys: list[str] = []
        inner = autograd_cache.autograd_cache_key

        def key(*args: Any, **kwargs: Any) -> Any:
            made = inner(*args, **kwargs)
            keys.append(made[0])
            if self.shares and made[0] in self.artifacts:
                raise Shared
            return made

        with (
            torch._functorch.config.patch(autograd_cache_normalize_inputs=True),
            patch.object(autograd_cache, "autograd_cache_key", key),
        ):
            try:
                made = torch._inductor.standalone_compile(
                    piece, given, dynamic_shapes="from_tracing_context"
                )
            except Shared:
                self.shared += 1
                made = self.artifacts[keys[0]]
        self.artifacts[keys[0]] = made
        output = next(node for node in piece.graph.nodes if node.op == "output").args[0]
        if isinstance(output, tuple | list):
            return lambda *args: made(*args)

        def single(*args: Any) -> Any:
            found = made(*args)
            return found[0] if isinstance(found, tuple | list) else found

        return single


def recorded(net: nn.Module, backend: Any) -> Session:
    compiled = torch.compile(net, backend=backend, fullgraph=True)
    x = torch.ones(4, 16)
    with torch.no_grad():
        compiled(x)
        with profiler_ext.profile() as prof:
            for _ in range(2):
                compiled(x)
                prof.step()
    return prof.session


def products(session: Session) -> Any:
    parts = session.attribution().merge(session.launches()[["launch", "start_ns"]], on="launch")
    return parts[parts.aten_op == "aten.mm.default"].sort_values("start_ns")


def modules_in_order(session: Session) -> list[str]:
    return [module for module, _ in groupby(products(session).module)]


def expected(held: str, order: tuple[int, ...]) -> list[str]:
    within = ("up", "down", "")
    return [f"{held}.{at}.{name}".rstrip(".") for at in order for name in within] * 2


@pytest.mark.parametrize("shares", [True, False])
def test_each_call_of_equal_parts_has_the_modules_whose_parameters_it_is_passed(
    fresh_torch: Path, shares: bool
) -> None:
    profiler_ext.enable(strict=True)
    backend = Pieces(shares=shares)
    session = recorded(Net(), backend)
    session.assert_coverage(1.0)
    assert modules_in_order(session) == expected("layers", (0, 1, 2))
    assert backend.shared == (1 if shares else 0)  # the piece between the second and third layer
    assert session.graphs().key.nunique() == 3


@pytest.mark.parametrize(
    ("held", "order"),
    [
        ("layers", (2, 0, 1)),
        pytest.param("blocks", (0, 1, 2), marks=pytest.mark.whole),
        ("blocks", (1, 2, 0)),
    ],
)
@pytest.mark.parametrize("shares", [True, False])
def test_parts_from_a_cache_have_the_modules_of_the_model_that_calls_them(
    fresh_torch: Path, shares: bool, held: str, order: tuple[int, ...]
) -> None:
    profiler_ext.enable(strict=True)
    recorded(Net(), Pieces(shares=False))
    torch._dynamo.reset()
    session = recorded(Net(held, order), Pieces(shares=shares))
    assert "miss" not in set(session.graphs().cache_state[4:])
    assert modules_in_order(session) == expected(held, order)
    assert products(session).line.notna().all()


def test_a_part_whose_parameters_no_module_holds_has_its_lines_and_no_module(
    fresh_torch: Path,
) -> None:
    profiler_ext.enable(strict=True)
    backend = Pieces(shares=True)
    copies = {}

    def detached(piece: torch.fx.GraphModule, given: list[Any]) -> Callable[..., Any]:
        made = Pieces.compiled(backend, piece, given)

        def call(*args: Any) -> Any:
            copied = [copies.setdefault(id(a), a.detach()) for a in args]
            return made(*copied)

        return call

    backend.compiled = detached  # type: ignore[method-assign]
    session = recorded(Net(), backend)
    found = products(session)
    assert found.module.isna().all()
    assert found.line.notna().all()
    assert set(found.gap.isna()) == {True}
