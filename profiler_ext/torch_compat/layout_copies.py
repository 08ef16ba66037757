"""Owns which input of an op a buffer is a copy of, made because of the layout that the op asks for.

Inductor lists all that the op computes from as the copy's origins, and the op itself as the last.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx

from profiler_ext.torch_compat.names import fx_names, kernel_names


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
    if op is None or not _is_plain_copy(buffer):
        return None
    given, own = list(_tensors((op.args, op.kwargs))), kernel_names.GET_NAME.of(buffer)()
    for kernel in _kernels(graph, op):
        names = [_buffer_name(value) for value in _flat(kernel_names.KERNEL_INPUTS.of(kernel))]
        if own in names and len(names) == len(given):
            return given[names.index(own)]
    return None


def _is_plain_copy(buffer: Any) -> bool:
    if not kernel_names.COMPUTED_BUFFER.is_type_of(buffer):
        return False
    if kernel_names.GET_ORIGIN_NODE.of(buffer)() is not None:
        return False
    return kernel_names.POINTWISE.is_type_of(kernel_names.BUFFER_DATA.of(buffer))


def _kernels(graph: Any, op: torch.fx.Node) -> Iterator[Any]:
    """The kernels without code of Inductor's that compute an op."""
    for kernel in kernel_names.OPERATIONS.of(graph):
        if _is_inputs_kernel(kernel.__class__) and op in kernel_names.GET_ORIGINS.of(kernel)():
            exact = kernel_names.GET_ORIGIN_NODE.of(kernel)()
            if exact is op or exact is None:
                yield kernel


@functools.lru_cache(maxsize=256)
def _is_inputs_kernel(kind: type) -> bool:
    """Tell whether a class of kernels is without code of Inductor's; all of a graph are asked."""
    return issubclass(kind, kernel_names.INPUTS_KERNEL.get())


def _buffer_name(value: Any) -> str | None:
    get_name = kernel_names.GET_NAME.maybe(value)
    return None if get_name is None else str(get_name())


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
        elif isinstance(item, torch.fx.Node) and isinstance(
            fx_names.VAL.of(item.meta), torch.Tensor
        ):
            yield item
