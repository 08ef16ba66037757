"""The eager run of a training step: each ATen op with the place that it comes from."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._inductor.decomposition import select_decomp_table
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from verification.truth import higher_order
from verification.truth.making import Making
from verification.truth.ops import Op, Place, plain_name
from verification.truth.standing import Standing

_COMPOSITE = "CompositeImplicitAutograd"


@dataclass(frozen=True, slots=True)
class Run:
    """What came of an eager run.

    Attributes:
        ops: what ran, in order.
        views: the names of those that run nothing on a device: they yield views.
        own_backward: the lines of the user's own backward functions, and of what they call.
        never_differentiated: the lines of what no gradient reached.
    """

    ops: tuple[Op, ...]
    views: frozenset[str]
    own_backward: frozenset[tuple[str, int]]
    never_differentiated: frozenset[tuple[str, int]]


class Watching(TorchDispatchMode):
    """Notes each op, after Inductor's decompositions."""

    def __init__(self, standing: Standing, making: Making) -> None:
        super().__init__()
        self.ops: list[Op] = []
        self.views: set[str] = set()
        self.own_backward: set[tuple[str, int]] = set()
        self._standing, self._making = standing, making
        self._table = select_decomp_table()
        self._sums: dict[int, list[int]] = {}
        self._kept: list[Any] = []
        making.handed = self._sum_is_handed

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = self._decomposed(func, args, kwargs or {})
        if out is NotImplemented:
            out = func(*args, **(kwargs or {}))
            self._note(plain_name(func.name()), out, args)
            self.views |= {plain_name(func.name())} if func.is_view else set()
        return out

    def _decomposed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = NotImplemented
        # The table's functions take no `out`, which tracing has none of.
        if func in self._table and not func.name().startswith("prims") and "out" not in kwargs:
            with self:
                out = self._table[func](*args, **kwargs)
        has_composite = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), _COMPOSITE)
        if out is NotImplemented and has_composite:
            with self:
                out = func.decompose(*args, **kwargs)
        return out

    def _note(self, name: str, out: Any, args: tuple[Any, ...]) -> None:
        outputs = tuple(
            (tuple(each.shape), str(each.dtype).removeprefix("torch.")) for each in _tensors(out)
        )
        is_backward = self._standing.is_in_engine()
        self.ops.append(Op(name, is_backward, outputs, self._place(is_backward)))
        if is_backward and name == "add" and self.ops[-1].place is None:
            self._begin_sum(args, out)

    def _place(self, is_backward: bool) -> Place | None:
        place = self._standing.place()
        if not is_backward:
            return place
        made = self._making.place_of_running()
        if place is None:
            return made
        if not self._standing.is_run_again():
            self.own_backward.add(place[:2])
        is_in_module = bool(place.module) or made is None
        return place if is_in_module else place._replace(module=made.module)

    def _begin_sum(self, args: tuple[Any, ...], out: torch.Tensor) -> None:
        """Note that an op of the engine's is of the value whose gradient its result will be."""
        earlier = [at for arg in args for at in self._sums.pop(id(arg), [])]
        self._sums[id(out)] = [*earlier, len(self.ops) - 1]
        self._kept.append(out)

    def _sum_is_handed(self, gradient: torch.Tensor, place: Place) -> None:
        for at in self._sums.pop(id(gradient), []):
            self.ops[at] = replace(self.ops[at], place=place)


def run_eagerly(model: Callable[..., Any], inputs: tuple[Any, ...]) -> Run:
    """Run a model forward and backward, and note what ran.

    Args:
        model: the model.
        inputs: what it is called on.
    """
    standing = Standing(model)
    making = Making(standing)
    watching = Watching(standing, making)
    with (
        _as_traced(),
        torch.autograd.set_multithreading_enabled(False),  # a GPU's backward, too, runs here
        higher_order.run_eagerly() as not_taken,
        standing.followed(),
        making.of_functions_too(),
        making,
        watching,
    ):
        differentiate([*differentiable(model(*inputs)), *not_taken])
    views = frozenset(watching.views)
    own_backward = frozenset(watching.own_backward | making.own_backward)
    never = making.lines_never_run()
    return Run(tuple(watching.ops), views, own_backward, never)


@contextlib.contextmanager
def _as_traced() -> Iterator[None]:
    """Decompose before autograd what tracing does, and convert for each use under autocast.

    A program that asks whether it is compiled goes the way that it then goes.
    """
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    asked = {"is_compiling": lambda: True, "is_dynamo_compiling": lambda: True}
    try:
        with enable_python_dispatcher(), mock.patch.multiple(torch.compiler, **asked):
            yield
    finally:
        torch.set_autocast_cache_enabled(before)


def differentiable(value: Any) -> list[torch.Tensor]:
    """Return the tensors in a value that a backward can start from."""
    return [each for each in _tensors(value) if each.requires_grad]


def differentiate(outputs: list[torch.Tensor]) -> None:
    """Run the backward of the sum of some tensors."""
    if outputs:
        torch.autograd.backward(outputs, [torch.ones_like(each) for each in outputs])


def _tensors(value: Any) -> list[torch.Tensor]:
    return [each for each in tree_leaves(value) if isinstance(each, torch.Tensor)]
