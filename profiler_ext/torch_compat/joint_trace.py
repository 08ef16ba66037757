"""The tracing of a model's joint graph: its forward and backward as one FX graph.

Source: ``torch/_functorch/aot_autograd.py``. ``aot_export_module(trace_joint=True)`` would trace
the joint graph once more, and its backward would lose the forward's ``seq_nr``.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx

from profiler_ext.errors import UsageError
from profiler_ext.torch_compat.names import fx_names, running_names

MODEL = "L['model']"
"""Dynamo's name for the traced model."""


class _TracedError(Exception):
    """Ends the call of a model once its graph is traced: nothing is run."""


@dataclass(slots=True)
class _Backend:
    """A compiler backend that only keeps the joint graph."""

    joint: torch.fx.GraphModule | None = field(default=None)

    def __call__(self, gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        self.joint = _joint_of(gm, inputs)
        return _stop


def trace_joint(
    model: Any, inputs: Sequence[Any], named_inputs: Mapping[str, Any]
) -> torch.fx.GraphModule:
    """Trace the joint graph of a model that returns its loss; the model is not run.

    Backward nodes have the ``seq_nr`` of the forward nodes they differentiate.
    """
    for name in (running_names.EXPORT_JOINT, fx_names.PRESERVE_META, fx_names.CURRENT_META):
        name.check()
    backend = _Backend()
    compiled = torch.compile(_fresh_call(), backend=backend, fullgraph=True, dynamic=False)
    try:
        with torch.enable_grad():
            is_wrapped = running_names.OPTIMIZED_MODULE.is_type_of(model)
            original = running_names.ORIGINAL_MODULE.of(model) if is_wrapped else model
            compiled(original, *inputs, **named_inputs)
    except _TracedError:
        pass
    except Exception as error:
        raise _usage_error(error) from error
    if backend.joint is None:
        raise UsageError("the model computes nothing that can be traced; give it a loss")
    return backend.joint


_FILE = "<seq_table>"


def _fresh_call() -> types.FunctionType:
    """Return a function with code of its own, so that no earlier trace is reused or counted."""

    def call(model: Any, *inputs: Any, **named_inputs: Any) -> Any:
        return model(*inputs, **named_inputs)

    # While capture is on, Dynamo traces no file of this package
    return types.FunctionType(call.__code__.replace(co_filename=_FILE), call.__globals__)


def _stop(*_: Any) -> None:
    raise _TracedError


def _joint_of(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> torch.fx.GraphModule:
    index = _loss_index(gm)

    def forward(*values: Any) -> tuple[Any, ...]:
        return (torch.fx.Interpreter(gm).run(*values)[index],)

    with torch.enable_grad(), _own_meta():
        joint = running_names.EXPORT_JOINT.get()(forward, tuple(inputs), no_tangents=True)[0]
    assert isinstance(joint, torch.fx.GraphModule)
    return joint


@contextmanager
def _own_meta() -> Iterator[None]:
    """Let nodes keep metadata, without any from an earlier trace."""
    with fx_names.PRESERVE_META.get()():
        fx_names.CURRENT_META.set({})
        yield


def _loss_index(gm: torch.fx.GraphModule) -> int:
    """Return which output is the loss: the only floating-point scalar with a gradient."""
    (outputs,) = next(node for node in reversed(gm.graph.nodes) if node.op == "output").args
    losses = [index for index, node in enumerate(outputs) if _is_loss(node)]
    if len(losses) != 1:
        raise UsageError(
            f"the model returns {len(losses)} scalars that require a gradient, expected one, "
            "the loss; wrap the model so that its forward returns the loss"
        )
    return losses[0]


def _is_loss(node: Any) -> bool:
    value = fx_names.EXAMPLE_VALUE.of(node.meta) if isinstance(node, torch.fx.Node) else None
    return isinstance(value, torch.Tensor) and value.requires_grad and value.numel() == 1


def _usage_error(error: Exception) -> UsageError:
    inner = running_names.INNER_EXCEPTION.maybe(error) or error
    if isinstance(inner, UsageError):
        return UsageError(str(inner))
    text = str(inner).strip().partition("\n")[0]
    return UsageError(
        f"the model cannot be traced as one graph ({type(inner).__name__}: {text}); "
        "give seq_table what torch.compile(fullgraph=True) can compile"
    )
