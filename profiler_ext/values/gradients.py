"""The gradients that autograd's nodes are given, node by node as a backward runs them.

Each node, before it runs, has a hook put on the nodes that it leads to: these run after it.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import torch

from profiler_ext.records.values import GradientValues, ProgramLine
from profiler_ext.torch_compat.names import running_names
from profiler_ext.values.fingerprints import filled_slices, is_plain, read_part
from profiler_ext.values.program_lines import ProgramLines

MAX_NODES = 30_000
_ACCUMULATES = "AccumulateGrad"
_SLICES = re.compile(r"Slice|Select|Index|Split|Unbind|Narrow|Gather|AsStrided|Chunk")
_MOVES = re.compile(r"(T|View|Transpose|Permute|Expand|ToCopy|Alias|Unsqueeze|Squeeze)Backward\d*$")
_SAME = 0.95  # of the zeros of a node that the node before it has, too


@dataclass(eq=False, slots=True)
class _Node:
    """What is known of a node once it has run."""

    name: str
    at: ProgramLine | None
    parents: list[int]
    # Of each gradient its shape, and which of all slices are its
    gradients: list[tuple[tuple[int, ...], int]] = field(default_factory=list)


class Gradients:
    """The gradients of a step."""

    def __init__(self, lines: ProgramLines, run: Callable[..., object]) -> None:
        self._lines, self._run = lines, run
        self.is_on = True
        self.left_out = 0  # nodes after which the backward was not followed
        self._nodes: list[_Node] = []
        self._slices: list[torch.Tensor] = []
        self._waiting: dict[int, tuple[Any, list[int]]] = {}  # nodes with a hook, and their parents
        self._running = threading.local()

    def line_of_running(self) -> ProgramLine | None:
        """Return the line of the forward op of the node that runs now."""
        node = running_names.CURRENT_NODE.get()()
        if node is None:
            return None
        if getattr(self._running, "node", None) is not node:
            self._begin(node, [], ())  # no hook: a backward begins with it
        line: ProgramLine | None = self._running.line
        return line

    def _begin(self, node: Any, parents: list[int], given: tuple[Any, ...]) -> None:
        line = self._lines.of_node(node)
        self._running.node, self._running.line = node, line
        made = _Node(node.name(), line, parents)
        for gradient in given if line is not None and not _is_of_weight(node) else ():
            if is_plain(gradient):
                made.gradients.append((tuple(gradient.shape), len(self._slices)))
                self._slices.append(filled_slices(gradient))
        self._nodes.append(made)
        if len(self._nodes) >= MAX_NODES:
            self.left_out += 1
            return
        for child, _ in node.next_functions:
            if child is not None and not child.name().endswith(_ACCUMULATES):
                self._wait_for(child, len(self._nodes) - 1)

    def _wait_for(self, child: Any, parent: int) -> None:
        key = id(child)
        if key not in self._waiting:
            self._waiting[key] = child, []
            child.register_prehook(partial(self._on_node, key))
        self._waiting[key][1].append(parent)

    def _on_node(self, key: int, given: tuple[Any, ...]) -> None:
        if self.is_on:
            self._run(self._take, key, given)

    def _take(self, key: int, given: tuple[Any, ...]) -> None:
        node = running_names.CURRENT_NODE.get()()
        _, parents = self._waiting.pop(key, (None, []))
        if node is not None:
            self._begin(node, parents, given)

    def end(self) -> None:
        """Hold nothing of the program any more."""
        self.is_on = False
        self._waiting.clear()
        self._running = threading.local()

    @property
    def numbers(self) -> list[torch.Tensor]:
        """What is to be read from the devices."""
        return self._slices

    def read(self, slices: list[list[int]]) -> tuple[GradientValues, ...]:
        """Return the gradients by line and node, from what was read."""
        sums: dict[tuple[Any, ...], Counter[str]] = {}
        zeros = self._zeros(slices, with_features=False)
        all_zeros = self._zeros(slices, with_features=True)
        readers = _readers(self._nodes, all_zeros)
        for at, node in enumerate(self._nodes):
            elements = self._elements(at)
            if node.at is None or not elements:
                continue
            begins = readers[at]
            reader = None if begins is None else self._nodes[begins]
            is_sliced = reader is not None and _SLICES.search(reader.name) is not None
            zero = all_zeros[at] if is_sliced else zeros[at]
            named = ("", None) if reader is None or not zero else (reader.name, reader.at)
            own = sums.setdefault((node.at, node.name, *named), Counter())
            own.update(calls=1, elements=elements, zero=int(zero * elements))
        return tuple(
            GradientValues(at, name, own["calls"], own["elements"], own["zero"], reader, reader_at)
            for (at, name, reader, reader_at), own in sums.items()
        )

    def _elements(self, at: int) -> int:
        return sum(prod(shape) for shape, _ in self._nodes[at].gradients)

    def _zeros(self, slices: list[list[int]], *, with_features: bool) -> list[float]:
        """Return the part of each node's gradients that is in slices of zeros."""
        result: list[float] = []
        for at, node in enumerate(self._nodes):
            filled = sum(
                prod(shape) * read_part(slices[begin], shape, with_features=with_features)
                for shape, begin in node.gradients
            )
            result.append(1 - filled / self._elements(at) if node.gradients else 0.0)
        return result


def _is_of_weight(node: Any) -> bool:
    """Tell whether a node only moves or casts a parameter, so that its gradient is that one's."""
    while _MOVES.match(node.name()) and len(node.next_functions) == 1:
        node = node.next_functions[0][0]
        if node is None or node.name().endswith(_ACCUMULATES):
            return True
    return False


def _readers(nodes: list[_Node], zeros: list[float]) -> list[int | None]:
    """Return the node at which the zeros of each node's gradient begin, if they have a begin."""
    readers: list[int | None] = []
    for at, node in enumerate(nodes):  # parents have run before
        before = list(_before(node.parents, at))
        also = [each for each in before if zeros[each] >= _SAME * zeros[at]]
        if not before or not zeros[at]:
            readers.append(None)
        elif also:
            readers.append(readers[also[0]] if readers[also[0]] is not None else also[0])
        else:
            readers.append(max(before, key=lambda each: zeros[each]))
    return readers


def _before(parents: list[int], at: int) -> Iterator[int]:
    return (each for each in dict.fromkeys(parents) if each < at)
