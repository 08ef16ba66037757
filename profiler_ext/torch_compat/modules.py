"""Owns which modules a module holds, and which ones Dynamo notes beside a node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from profiler_ext.torch_compat import fx, process
from profiler_ext.torch_compat.names import fx_names


def held_modules(holder: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the modules that a module holds, without a call of what is the user's own.

    Source: ``torch/nn/modules/module.py``, ``Module.__init__``: ``_modules``, which is not
    there before it has run, and may be anything in a module that is no ordinary one.
    """
    for name, module in _entries(holder, "_modules"):
        if process.is_module(module):
            yield name, module


def held_parameters(holder: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the parameters that a module holds itself, without a call of what is the user's own.

    Source: ``torch/nn/modules/module.py``, ``Module.__init__``: ``_parameters``.
    """
    for name, tensor in _entries(holder, "_parameters"):
        if issubclass(type(tensor), torch.Tensor):
            yield name, tensor


def _entries(holder: torch.nn.Module, attribute: str) -> Iterator[tuple[str, Any]]:
    held: Any = process.own_attributes(holder).get(attribute)
    if not issubclass(type(held), dict):
        return
    for name, value in list(dict.items(held)):
        if type(name) is str:
            yield name, value


def modules_called(meta: fx.Meta) -> tuple[tuple[int | None, str], ...]:
    """Return ``(id, path)`` from the root inwards; the id of a module that torch numbers only.

    Source: ``torch/_dynamo/variables/nn_module.py``, ``record_nn_module_stack``: the key is the
    module's ``id``, and from its second call on ``@`` with the number of calls before.
    """
    stack = fx_names.NN_MODULE_STACK.of(meta) or {}
    return tuple([(_identity(str(key)), str(path)) for key, (path, _) in stack.items()])


def _identity(key: str) -> int | None:
    number = key.partition("@")[0]
    return int(number) if number.isdecimal() else None
