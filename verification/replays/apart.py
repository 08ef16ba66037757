"""Layers whose forward and backward are captured in graphs of their own, as libraries do it.

Transformer Engine (``transformer_engine/pytorch/graph.py``, ``_make_graphed_callables``) and
Megatron (``megatron/core/transformer/cuda_graphs.py``, ``create_bwd_graph``) capture the forwards
of all layers in order, then the backwards in reverse, all in one pool, each with
``torch.cuda.graph``. An autograd function replays them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["graphed_as_megatron", "graphed_as_transformer_engine"]

_WARM_UP = 3
Backward = Callable[[Tensor, tuple[Tensor, ...], Tensor], tuple[Tensor | None, ...]]


def graphed_as_transformer_engine(layers: tuple[nn.Module, ...], x: Tensor) -> None:
    """Let layers replay graphs; a backward leaves gradients where autograd puts them."""

    def backward(out: Tensor, inputs: tuple[Tensor, ...], grad: Tensor) -> tuple[Any, ...]:
        for each in inputs:
            each.grad = None
        torch.autograd.backward((out,), grad_tensors=(grad,))
        return tuple(each.grad for each in inputs)

    _graphed(layers, x, backward)


def graphed_as_megatron(layers: tuple[nn.Module, ...], x: Tensor) -> None:
    """Let layers replay graphs; a backward adds to ``main_grad`` of each parameter."""

    def backward(out: Tensor, inputs: tuple[Tensor, ...], grad: Tensor) -> tuple[Any, ...]:
        grads = torch.autograd.grad((out,), inputs, (grad,))
        for parameter, own in zip(inputs[1:], grads[1:], strict=True):
            main_grad: Tensor = parameter.main_grad  # type: ignore[attr-defined]
            main_grad.add_(own)
        return grads

    for parameter in (each for layer in layers for each in layer.parameters()):
        parameter.main_grad = torch.zeros_like(parameter)  # type: ignore[attr-defined]
    _graphed(layers, x, backward)


def _graphed(layers: tuple[nn.Module, ...], x: Tensor, backward: Backward) -> None:
    surfaces = [(x.detach().clone().requires_grad_(), *each.parameters()) for each in layers]
    forwards, backwards = ([torch.cuda.CUDAGraph() for _ in layers] for _ in range(2))
    pool: Any = torch.cuda.graph_pool_handle()
    with torch.cuda.stream(torch.cuda.Stream()):
        for layer, surface in zip(layers, surfaces, strict=True):
            for _ in range(_WARM_UP):
                out = layer(surface[0])
                backward(out, surface, torch.empty_like(out))
    torch.cuda.synchronize()
    outs = []
    for graph, layer, surface in zip(forwards, layers, surfaces, strict=True):
        with torch.cuda.graph(graph, pool=pool):
            outs.append(layer(surface[0]))
    grads = [torch.empty_like(out) for out in outs]
    of_inputs: list[tuple[Tensor | None, ...]] = [() for _ in layers]
    for at in reversed(range(len(layers))):
        with torch.cuda.graph(backwards[at], pool=pool):
            of_inputs[at] = backward(outs[at], surfaces[at], grads[at])
    for at, layer in enumerate(layers):
        own = _function(forwards[at], backwards[at], surfaces[at], outs[at], grads[at])
        own.of_inputs = of_inputs[at]
        parameters = surfaces[at][1:]
        layer.forward = lambda h, own=own, parameters=parameters: own.apply(h, *parameters)
        layer._compiled_call_impl = None  # what it compiled is in the graphs


def _function(
    forward_graph: Any, backward_graph: Any, surface: tuple[Tensor, ...], out: Tensor, grad: Tensor
) -> Any:
    class Graphed(torch.autograd.Function):
        of_inputs: tuple[Tensor | None, ...] = ()

        @staticmethod
        def forward(_: Any, h: Tensor, *__: Tensor) -> Tensor:
            surface[0].data.copy_(h)
            forward_graph.replay()
            return out.detach()

        @staticmethod
        def backward(_: Any, own: Tensor) -> tuple[Tensor | None, ...]:
            grad.copy_(own)
            backward_graph.replay()
            return tuple(None if each is None else each.detach() for each in Graphed.of_inputs)

    return Graphed
