"""Owns which input of an op a buffer is a copy of, made because of the layout that the op asks for.

Inductor lists all that the op computes from as the copy's origins, and the op itself as the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.fx


def copied_input(graph: Any, buffer: Any, op: torch.fx.Node | None) -> torch.fx.Node | None:
    """Return the input of an op that a buffer holds.

    Source: ``torch/_inductor/ir.py``: ``ConcatKernel.create`` writes each input into its place,
    and ``ExternKernel.copy_input`` gives a library's input the strides that it needs.

    Args:
        graph: the ``GraphLowering``.
        buffer: an IR buffer.
        op: what Inductor calls its origin.

    Returns:
        The input, ``None`` where the buffer is no copy or the input cannot be told.
    """
    from torch._inductor.ir import ComputedBuffer, Pointwise

    if op is None or not isinstance(buffer, ComputedBuffer) or buffer.get_origin_node() is not None:
        return None
    if not isinstance(buffer.data, Pointwise):
        return None
    given = list(_tensors((op.args, op.kwargs)))
    for kernel in _kernels(graph, op):
        names = [_name(value) for value in _flat(kernel.inputs)]
        if buffer.get_name() in names and len(names) == len(given):
            return given[names.index(buffer.get_name())]
    return None


def _kernels(graph: Any, op: torch.fx.Node) -> Iterator[Any]:
    """The kernels without code of Inductor's that compute an op."""
    from torch._inductor.ir import InputsKernel

    for kernel in graph.operations:
        if isinstance(kernel, InputsKernel) and op in kernel.get_origins():
            exact = kernel.get_origin_node()
            if exact is op or exact is None:
                yield kernel


def _name(value: Any) -> str | None:
    return str(value.get_name()) if hasattr(value, "get_name") else None


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def _tensors(value: Any) -> Iterator[torch.fx.Node]:
    """The tensors that a call is given, in the order in which Inductor flattens them."""
    if isinstance(value, dict):
        value = tuple(value.values())
    for item in _flat(value):
        if isinstance(item, dict):
            yield from _tensors(item)
        elif isinstance(item, torch.fx.Node) and isinstance(item.meta.get("val"), torch.Tensor):
            yield item
