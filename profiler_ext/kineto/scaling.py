"""Owns the names of ops that a gradient scaler runs: ``unscale_``, ``step`` and ``update``.

Two ops are called by nothing else. What torch runs right before each of them is told by its order,
and so is what ``step`` asks between unscaling and the optimizer's own step.
Source: ``torch/amp/grad_scaler.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from profiler_ext.kineto import names

_UNSCALE = "aten::_amp_foreach_non_finite_check_and_unscale_"
_UPDATE = "aten::_amp_update_scale_"
_ITEM = "aten::item"
_LETTERS = {"aten::to": "t", "aten::reciprocal": "r", "aten::full": "f", "aten::add_": "a"}
_UNSCALES = re.compile(r"trtft*$")
"""``scale.double().reciprocal().float()``, ``torch.full`` for what is found, copies for devices."""
_UPDATES = re.compile(r"(t+)(a*)$")
"""What was found on each of several devices, and its sum."""
MAX_OPS_BEFORE = 24
"""So many ops before a scaler's may be its own: with eight devices there are fewer."""


def is_scaling_op(name: str) -> bool:
    """Tell whether only a gradient scaler calls this operator."""
    return name in (_UNSCALE, _UPDATE)


def own_ops_before(name: str, before: Sequence[str]) -> int:
    """Return how many ops before a scaler's are its own.

    Args:
        name: that of the scaler's op.
        before: those of the ops before it, in order of time.
    """
    letters = "".join(_LETTERS.get(each, ".") for each in before)
    if name == _UNSCALE:
        match = _UNSCALES.search(letters)
        return len(match[0]) if match else 0
    match = _UPDATES.search(letters)
    sums = len(match[2]) if match else 0
    return 2 * sums + 1 if match and len(match[1]) > sums else 0


def is_step_check(name: str, after: Sequence[str]) -> bool:
    """Tell whether the op after a scaler's asks if all gradients were finite: ``found_inf.item()``.

    Where the program runs something in between, an ``item`` can be the program's own.

    Args:
        name: that of the scaler's op.
        after: those of what runs after it, optimizers' steps among them, in order of time.
    """
    is_all = name == _UNSCALE and len(after) > 1 and after[0] == _ITEM
    return is_all and names.optimizer_step(after[1]) is not None
