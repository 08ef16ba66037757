"""Owns what autograd tells while it works: its nodes' names and numbers.

Source: ``torch/csrc/autograd/function.h`` (``Node``), ``torch/csrc/autograd/init.cpp``.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import torch


class Running(NamedTuple):
    """An autograd node: ``MulBackward0``, and the number that it was given when it was made."""

    name: str
    number: int


def running() -> Running | None:
    """Return the autograd node that runs in this thread."""
    node = torch._C._current_autograd_node()
    return None if node is None else Running(node.name(), node._sequence_nr())


def feeds_twice() -> bool:
    """Tell whether the node that runs hands two gradients to one input of another node."""
    node = torch._C._current_autograd_node()
    edges = Counter(node.next_functions) if node is not None else Counter()
    return any(count > 1 for (to, _), count in edges.items() if to is not None)


def last_number() -> int:
    """Return the number of the autograd node that this thread made last."""
    return torch._C._autograd._get_sequence_nr() - 1
