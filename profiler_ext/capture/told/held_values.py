"""Owns which FX node's value each variable of a generated wrapper holds, as far as it is known.

The wrapper's inputs are named after the graph's; each launch whose nodes are known tells what
its outputs hold. What a launch that is not understood may have written is unknown again.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable

from profiler_ext.capture.sites.wrapper_calls import variable
from profiler_ext.capture.told.printed_graphs import PrintedGraph

_DTYPES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "bool": "b8",
}
Storage = tuple[str, int]
"""A kind of element, and how many."""


class HeldValues:
    """The variables while the wrapper is walked through from top to bottom."""

    def __init__(self, source: str, graph: PrintedGraph) -> None:
        """Read what the wrapper allocates and renames.

        Args:
            source: the generated module's text.
            graph: the graph that it was generated from.
        """
        self._graph = graph
        self._nodes: dict[str, str | None] = {name: name for name in graph.inputs}
        self._same: dict[str, str] = {}
        self._parts: dict[str, tuple[str, int]] = {}
        self._storage: dict[str, Storage] = {
            name: storage
            for name, spec in graph.inputs.items()
            if (storage := storage_of(spec)) is not None
        }
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._note(node.targets[0].id, node.value)

    def node(self, name: str) -> str | None:
        """Return the node whose value a variable holds, ``None`` where that is not known."""
        if name in self._nodes:
            return self._nodes[name]
        if name in self._parts:
            return self._part(*self._parts[name])
        return self.node(self._same[name]) if name in self._same else None

    def write(self, name: str, node: str | None) -> None:
        """Note what a variable holds from here on."""
        self._nodes[name] = node

    def fitting(self, name: str, nodes: Iterable[str]) -> str | None:
        """Return the one of some nodes that a variable has room for; ``None`` unless it is one."""
        storage = self._storage_of(name)
        found = [n for n in nodes if storage and self._needs(n) == storage]
        return found[0] if len(found) == 1 else None

    def _needs(self, node: str) -> Storage | None:
        return storage_of(self._graph.nodes[node].spec) if node in self._graph.nodes else None

    def _storage_of(self, name: str) -> Storage | None:
        if name in self._storage:
            return self._storage[name]
        return self._storage_of(self._same[name]) if name in self._same else None

    def _part(self, whole: str, index: int) -> str | None:
        held = self.node(whole)
        nodes = self._graph.nodes.values()
        parts = (n.name for n in nodes if n.call == f"_[{index}]" and n.inputs == (held,))
        return next(parts, None)

    def _note(self, name: str, value: ast.expr) -> None:
        if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
            whole, index = variable(value.value), value.slice.value
            if whole is not None and isinstance(index, int):
                self._parts[name] = (whole, index)
        elif isinstance(value, ast.Name):
            self._same.setdefault(name, value.id)
        elif isinstance(value, ast.Call):
            self._note_call(name, value)

    def _note_call(self, name: str, call: ast.Call) -> None:
        function = call.func.id if isinstance(call.func, ast.Name) else ""
        if function == "reinterpret_tensor" and (of := variable(call)) is not None:
            self._same.setdefault(name, of)
        elif function.startswith("empty_strided") and len(call.args) >= 3:
            storage = _allocated(call.args[0], ast.unparse(call.args[2]))
            if storage is not None:
                self._storage[name] = storage


def storage_of(spec: str | None) -> Storage | None:
    """Return what a tensor printed as ``f32[4, 64]`` takes; ``None`` where a size is open."""
    dtype, _, size = (spec or "").rstrip("]").partition("[")
    sizes = [each.strip() for each in size.split(",") if each.strip()]
    is_known = bool(dtype) and all(each.isdigit() for each in sizes)
    return (dtype, math.prod(int(each) for each in sizes)) if is_known else None


def _allocated(size: ast.expr, dtype: str) -> Storage | None:
    sizes = [getattr(each, "value", None) for each in getattr(size, "elts", [])]
    numbers = [each for each in sizes if isinstance(each, int)]
    short = _DTYPES.get(dtype.removeprefix("torch."))
    return (short, math.prod(numbers)) if short and len(numbers) == len(sizes) else None
