"""Owns what autograd tells while it works: its nodes' names and numbers.

Source: ``torch/csrc/autograd/function.h`` (``Node``), ``torch/csrc/autograd/init.cpp``.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import torch.autograd.graph

from profiler_ext.torch_compat.names import running_names


class Running(NamedTuple):
    """An autograd node: ``MulBackward0``, and the number that it was given when it was made."""

    name: str
    number: int


def running() -> Running | None:
    """Return the autograd node that runs in this thread."""
    node = _current()
    number = running_names.NODE_SEQUENCE_NR
    return None if node is None else Running(node.name(), number.of(node)())


def feeds_twice() -> bool:
    """Tell whether the node that runs hands two gradients to one input of another node."""
    node = _current()
    edges = Counter(node.next_functions) if node is not None else Counter()
    return any(count > 1 for (to, _), count in edges.items() if to is not None)


def last_number() -> int:
    """Return the number of the autograd node that this thread made last."""
    return int(running_names.LAST_SEQUENCE_NR.get()()) - 1


def _current() -> torch.autograd.graph.Node | None:
    node: torch.autograd.graph.Node | None = running_names.CURRENT_NODE.get()()
    return node
