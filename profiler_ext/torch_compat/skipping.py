"""Owns that Dynamo leaves this package's own code alone.

A hook may run while Dynamo watches the thread's frames: under compiled autograd's flag the
engine builds its graph inside the region that is compiled. Torch's own files are skipped
there; without this, Dynamo would compile the hooks.

Source: ``torch/_dynamo/trace_rules.py``, ``add`` and ``SKIP_DIRS``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from profiler_ext.torch_compat.names import running_names

_F = TypeVar("_F", bound=Callable[..., object])
_PACKAGE = __name__.partition(".")[0]


def skip_own_code() -> None:
    """Tell Dynamo not to compile this package's frames."""
    running_names.ADD_RULE.get()(_PACKAGE)


def forget_own_code() -> None:
    """Leave Dynamo's rules as they were found."""
    from importlib.util import find_spec

    spec, skipped = find_spec(_PACKAGE), running_names.SKIP_DIRS.get()
    folder = running_names.STRIP_INIT.get()(spec.origin) if spec and spec.origin else None
    if folder in skipped:
        skipped.remove(folder)
        running_names.RECOMPILE_RULES.get()()


def not_traced(reason: str) -> Callable[[_F], _F]:
    """Have Dynamo break its graph at a function of ours, whether capture is on yet or not.

    It is what ``torch.compiler.disable`` puts on a function, which would import Dynamo for it.

    Args:
        reason: what Dynamo says where it may not break a graph (``fullgraph=True``).

    Returns:
        What marks the function that it shall call, and not trace.

    Source: ``torch/_dynamo/symbolic_convert.py``, ``check_inlineable``.
    """

    def marked(function: _F) -> _F:
        vars(function).update(_torchdynamo_disable=True, _torchdynamo_disable_msg=reason)
        return function

    return marked
