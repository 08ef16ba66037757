"""Where each node of autograd was made, and which of them the engine runs."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor
from torch.autograd.forward_ad import unpack_dual
from torch.autograd.graph import Node
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from verification.truth.ops import Place
from verification.truth.standing import Standing

Handed = Callable[[torch.Tensor, Place], None]
"""What is told of a gradient that the engine hands to a node, and of where its value was made."""

_LEAF = "AccumulateGrad"


class Making(TorchFunctionMode):
    """Looks after each call of torch which nodes it made; they are kept, to be known again.

    Attributes:
        running: the node that the engine runs.
        own_backward: the lines of the backward functions of the user's own functions.
        handed: what is told of each gradient that a node is handed.
    """

    def __init__(self, standing: Standing) -> None:
        super().__init__()
        self.running: Node | None = None
        self.own_backward: set[tuple[str, int]] = set()
        self._hooked: Place | None = None
        self.handed: Handed = lambda gradient, place: None
        self._standing = standing
        self._places: dict[Node, Place | None] = {}
        self._in_function: dict[int, Place | None] | None = None
        self._of_outputs: dict[tuple[Node, int], Place | None] = {}
        self._ran: set[Node] = set()

    def place_of_running(self) -> Place | None:
        """Return where the node was made that the engine runs, or the hook was that runs."""
        if self._hooked is not None:
            return self._hooked
        return None if self.running is None else self._places.get(self.running)

    def lines_never_run(self) -> frozenset[tuple[str, int]]:
        """Return the lines of nodes that the engine did not run: no gradient reached them."""
        never = (place for node, place in self._places.items() if node not in self._ran)
        return frozenset(place[:2] for place in never if place is not None)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        self._add((out, args), self._standing.place)
        if self._in_function is not None:
            self._in_function |= dict.fromkeys(map(id, _tensors(out)), self._standing.place())
        return out

    @contextlib.contextmanager
    def of_functions_too(self) -> Iterator[None]:
        """Look after the user's own ``autograd.Function`` and hooks, which no mode sees."""
        apply = inspect.getattr_static(torch.autograd.Function, "apply")

        def applied(cls: Any, *args: Any, **kwargs: Any) -> Any:
            self.own_backward |= _lines(cls.backward)
            around, self._in_function = self._in_function, {}
            out = apply.__get__(None, cls)(*args, **kwargs)
            made, self._in_function = self._in_function, around
            self._add(out, self._standing.place)
            for each in _tensors(out):
                if each.grad_fn is not None and id(each) in made:
                    self._of_outputs[each.grad_fn, each.output_nr] = made[id(each)]
            return out

        register = torch.Tensor.register_hook

        def registered(tensor: torch.Tensor, hook: Any) -> Any:
            return register(tensor, self._standing_here(hook))

        with (
            mock.patch.object(torch.autograd.Function, "apply", classmethod(applied)),
            mock.patch.object(torch.Tensor, "register_hook", registered),
        ):
            yield

    def _standing_here(self, hook: Any) -> Any:
        """Return a hook of which is known where it was put on a tensor."""
        place = self._standing.place()

        def standing(gradient: torch.Tensor) -> Any:
            self._hooked = place
            try:
                return hook(gradient)
            finally:
                self._hooked = None

        return standing

    def _add(self, values: Any, place_of: Callable[[], Place | None]) -> None:
        todo = [level.grad_fn for each in _tensors(values) for level in _levels(each)]
        if not any(node is not None and node not in self._places for node in todo):
            return
        place = place_of()
        while todo:
            node = todo.pop()
            if node is not None and node not in self._places:
                self._places[node] = place
                self._watch(node)
                todo += [before for before, _ in node.next_functions]

    def _watch(self, node: Node) -> None:
        """Note when a node runs, and say what gradients it is handed: a sum, if there were two."""

        def begins(gradients: Any) -> None:
            self.running, place = node, self._places[_past_aliases(node)]
            self._ran.add(node)
            for at, gradient in enumerate(gradients if _LEAF not in node.name() else ()):
                made = self._of_outputs.get((node, at), place)
                if gradient is not None and made is not None:
                    self.handed(gradient, made)

        def ends(gradients: Any, _: Any) -> None:
            self._add(gradients, lambda: self._places[node])  # what differentiates them in turn
            self.running = None

        node.register_prehook(begins)
        node.register_hook(ends)


def _tensors(values: Any) -> list[torch.Tensor]:
    return [each for each in tree_leaves(values) if isinstance(each, torch.Tensor)]


def _lines(function: Any) -> set[tuple[str, int]]:
    code = inspect.unwrap(function).__code__
    return {(code.co_filename, line) for _, _, line in code.co_lines() if line is not None}


def _levels(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield a tensor, its tangent, and what they wrap: ``vmap``'s nodes are of what is within."""
    yield tensor
    tangent = unpack_dual(tensor).tangent
    if tangent is not None:
        yield from _levels(tangent)
    while is_functorch_wrapped_tensor(tensor):
        tensor = get_unwrapped(tensor)
        yield tensor


def _past_aliases(node: Node) -> Node:
    """Return what made the value itself: of a slice that yields all of it a graph has nothing."""
    while node.name() == "AliasBackward0":
        node = node.next_functions[0][0]
    return node
