"""Owns what to try where a guard of compiled code failed, by how torch writes the guard."""

from __future__ import annotations

import re
from typing import Final

SIZES: Final = (
    "say that the size changes: mark_dynamic for that input, or torch.compile(dynamic=True); or "
    "pad batches to few sizes"
)
LAYOUT: Final = (
    "hand the input over in one layout: .contiguous() before the call, or one memory_format for all"
)
TENSOR: Final = (
    "hand the input over alike in each call: of one dtype, with as many dimensions, on one device"
)
GRADIENTS: Final = (
    "code with gradients and code without are compiled apart, so one of each is right; of more, "
    "let inputs be alike: want a gradient in each call or in none, and be made under one of "
    "no_grad() and inference_mode()"
)
TRAINING: Final = (
    "code for train() and code for eval() are compiled apart, so one of each is right; where that "
    "costs too much, evaluate with the model that torch.compile was given, uncompiled"
)
_ONE_OF_EACH: Final = (
    r"requires_grad mismatch",
    r"dispatch key set mismatch",
    r"changed: grad_mode",
    r"\.training == ",
)
"""What may fail once where a program trains and evaluates, or calls equal blocks one after another,
of which the first has an input that wants no gradient."""
BACKEND: Final = "call torch.compile once for each function, and keep what it returns"
STATE: Final = (
    "call it in one state: the same autocast, determinism and number of threads in each call"
)
VALUES: Final = (
    "keep what the guard compares constant: hand it over as a tensor, or take it out of the model"
)
_REMEDIES: Final = (
    (r"stride mismatch", LAYOUT),
    (r"(?:dtype|rank|device index) mismatch", TENSOR),
    (r"requires_grad mismatch|dispatch key set mismatch|changed: grad_mode", GRADIENTS),
    (r"GLOBAL_STATE changed", STATE),
    (r"BACKEND_MATCH", BACKEND),
    (r"\.training == ", TRAINING),
    (r"size mismatch|\bsize\b|\.shape", SIZES),
)
"""Of two that stand in a guard the first is meant."""


def expected_guard_kind(guard: str) -> str | None:
    """Return what kind of guard it is, where one failure of that kind is as it should be.

    Args:
        guard: as torch writes it.
    """
    return next((kind for kind in _ONE_OF_EACH if re.search(kind, guard)), None)


def guard_remedy(guard: str) -> str:
    """Return what to try so that a guard does not fail again.

    Args:
        guard: as torch writes it.
    """
    return next((remedy for text, remedy in _REMEDIES if re.search(text, guard)), VALUES)
