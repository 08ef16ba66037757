"""Owns what the text of a generated module tells of its call sites' nodes, and no more.

A Triton kernel's comment names the nodes of its first call site. A later site computes a copy
of them, made of what its arguments hold; a library call is the one node of its op that reads
what it is given. A site for which the text leaves several nodes open has none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence, Set

from profiler_ext.capture.copies import Copy, copies_of
from profiler_ext.capture.exact_nodes import exact_nodes
from profiler_ext.capture.held_values import HeldValues
from profiler_ext.capture.kernel_comments import KernelComment, kernel_comments, source_names
from profiler_ext.capture.printed_graphs import PrintedGraph, PrintedNode
from profiler_ext.capture.wrapper_calls import WrapperCall

_COPY = "aten.copy_.default"
_VIEWS = frozenset(
    f"aten.{name}"
    for name in (
        "view",
        "reshape",
        "permute",
        "t",
        "transpose",
        "expand",
        "squeeze",
        "unsqueeze",
        "slice",
        "select",
        "alias",
        "as_strided",
    )
)


def told_nodes(
    source: str, graph: PrintedGraph, calls: Sequence[WrapperCall], *, is_backward: bool
) -> list[tuple[str, ...]]:
    """Return the nodes of each launch, in graph order; none where the text leaves them open.

    Args:
        source: the generated module's text.
        graph: the graph that it was generated from.
        calls: its launches, in program order.
        is_backward: it is a backward graph, so that comments name its own nodes.
    """
    walk = _Walk(source, graph, is_backward)
    order = {name: index for index, name in enumerate(graph.nodes)}
    return [tuple(sorted(walk.nodes_of(call), key=order.__getitem__)) for call in calls]


class _Walk:
    """Goes through the launches of a wrapper in program order."""

    def __init__(self, source: str, graph: PrintedGraph, is_backward: bool) -> None:
        self._graph, self._is_backward = graph, is_backward
        self._lines = source.splitlines()
        self._values = HeldValues(source, graph)
        self._comments = kernel_comments(source)
        self._first: dict[str, _Kernel] = {}
        self._written: set[str] = set()
        self._partial: dict[str, str] = {}
        self._called: set[str] = set()

    def nodes_of(self, call: WrapperCall) -> Set[str]:
        """Return the nodes that a launch computes; it must be the next one."""
        if not call.generated:
            return self._library(call)
        if call.callee in self._first:
            return self._again(call, self._first[call.callee])
        said = self._comments.get(call.callee)
        comment = said and _resolved(said, self._graph, self._partial)
        if said is None or comment is None:
            for name in filter(None, call.arguments):
                self._values.write(name, None)
            return frozenset()
        parts = {self._partial[name] for name in said.reads if name in self._partial}
        return self._new(call, comment, parts)

    def _new(self, call: WrapperCall, comment: KernelComment, parts: Set[str]) -> Set[str]:
        nodes = _computed(comment, self._graph, self._written, parts)
        kernel = _Kernel(comment, nodes, self._heading(call))
        self._first[call.callee] = kernel
        kernel.learn_reads(call, self._values)
        kernel.learn_writes(call, self._values)
        self._wrote(call, kernel, {name: name for name in self._graph.nodes})
        return nodes

    def _again(self, call: WrapperCall, kernel: _Kernel) -> Set[str]:
        fitting = [
            copy for copy in kernel.copies(self._graph) if kernel.fits(copy, call, self._values)
        ]
        if len(fitting) > 1 and self._is_backward:
            named = source_names(self._heading(call))
            fitting = [copy for copy in fitting if kernel.is_named(copy, named)]
        copy = fitting[0] if len(fitting) == 1 else {}
        self._wrote(call, kernel, copy)
        return {copy[name] for name in kernel.nodes} if copy else frozenset()

    def _wrote(self, call: WrapperCall, kernel: _Kernel, copy: Copy) -> None:
        for at, name in kernel.outputs(call):
            node = copy.get(kernel.writes_at.get(at, ""))
            self._values.write(name, node)
        self._written.update(copy[name] for name in kernel.comment.writes if name in copy)

    def _library(self, call: WrapperCall) -> Set[str]:
        op = call.callee.removeprefix("torch.ops.").replace("extern_kernels.", "aten.")
        given = {n for a in call.arguments if a and (n := self._values.node(a)) is not None}
        found = [
            name
            for name, node in self._graph.nodes.items()
            if f"{node.target}.".startswith(f"{op}.")
            and name not in self._called
            and given <= self._made_of(node.inputs)
        ]
        if len(found) > 1 and self._is_backward:
            named = source_names(self._heading(call))
            found = [name for name in found if name in named]
        node = found[0] if len(found) == 1 else None
        for name in filter(None, (call.buffer, call.out)):
            self._values.write(name, node)
        if node is not None:
            self._called.add(node)
        return {node} if node is not None else frozenset()

    def _made_of(self, names: Iterable[str]) -> Set[str]:
        """The values that a node is given, and those that they are views of."""
        found = set(names)
        for name in names:
            node = self._graph.nodes.get(name)
            if node is not None and node.target.rpartition(".")[0] in _VIEWS:
                found |= self._made_of(node.inputs[:1])
        return found

    def _heading(self, call: WrapperCall) -> str:
        """The comment above a call, over the statements that prepare it."""
        above = reversed(self._lines[max(call.line - 4, 0) : call.line - 1])
        return next((line for line in above if "Source Nodes: [" in line), "")


class _Kernel:
    """A kernel as its first call site is described."""

    def __init__(self, comment: KernelComment, nodes: Set[str], heading: str) -> None:
        self.comment, self.nodes = comment, nodes
        self.writes_at: dict[int, str] = {}
        self._reads_at: dict[int, str] = {}
        self._named = source_names(heading)
        self._copies: list[Copy] | None = None

    def copies(self, graph: PrintedGraph) -> list[Copy]:
        """Return the places of the graph where the kernel's nodes may stand."""
        if self._copies is None:
            self._copies = copies_of(self.nodes, graph) if self.nodes else []
            self._copies = [c for c in self._copies if any(c[n] != n for n in self.nodes)]
        return self._copies

    def inputs(self, call: WrapperCall) -> list[tuple[int, str]]:
        """Return the places and variables of the arguments that it reads."""
        return self._arguments(call, ("in_", "arg_"))

    def outputs(self, call: WrapperCall) -> list[tuple[int, str]]:
        """Return the places and variables of the arguments that it writes."""
        return self._arguments(call, ("out_", "in_out_"))

    def learn_reads(self, call: WrapperCall, values: HeldValues) -> None:
        """Learn which argument holds which of its values, where that is known."""
        for at, name in self.inputs(call):
            if (node := values.node(name)) in self.comment.reads:
                self._reads_at[at] = str(node)

    def learn_writes(self, call: WrapperCall, values: HeldValues) -> None:
        """Learn which argument takes which of its values, by the room that they need."""
        for at, name in self.outputs(call):
            if (node := values.fitting(name, self.comment.writes)) is not None:
                self.writes_at[at] = node

    def fits(self, copy: Copy, call: WrapperCall, values: HeldValues) -> bool:
        """Tell whether a copy of its nodes reads what a call is given, as far as that is known."""
        given = {at: node for at, name in self.inputs(call) if (node := values.node(name))}
        known = [at for at, read in self._reads_at.items() if at in given and read in copy]
        return bool(known) and all(copy[self._reads_at[at]] == given[at] for at in known)

    def is_named(self, copy: Copy, named: Set[str]) -> bool:
        """Tell whether the comment above a call names the copy.

        A node of the backward is named after itself there, any other as Dynamo called it.
        """
        sources = self.comment.sources
        own = [n for n in self.nodes if n in self._named and sources.get(n) == (n,)]
        return bool(own) and all(copy[name] in named for name in own)

    def _arguments(self, call: WrapperCall, kinds: tuple[str, ...]) -> list[tuple[int, str]]:
        names = zip(call.arguments, self.comment.parameters, strict=False)
        return [(at, a) for at, (a, p) in enumerate(names) if a and p.startswith(kinds)]


def _resolved(
    comment: KernelComment, graph: PrintedGraph, partial: dict[str, str]
) -> KernelComment | None:
    """Return a comment with FX nodes for buffers; ``None`` where that cannot be told.

    A buffer that bears no node's name holds a partial value of the node that leaves the kernel,
    or a mutated input; to read what is copied to an input is to read the input. What the
    kernel keeps for itself is left out.

    Args:
        comment: what stands above the kernel.
        graph: the graph.
        partial: the nodes of which buffers hold partial values; added to.
    """
    known = {*graph.nodes, *graph.inputs}
    own = (comment.reads & set(comment.writes)) - known
    reads = {_mutated(name, comment, graph) for name in comment.reads - own}
    unnamed = [name for name in comment.writes if name not in known | own]
    left = _left(comment, graph) if unnamed else frozenset()
    if unnamed and (len(left) not in (1, len(unnamed)) or left & reads):
        return None
    if len(left) == 1:
        partial.update(dict.fromkeys(unnamed, next(iter(left))))
    reads = {partial.get(name, name) for name in reads}
    if not reads <= known:
        return None
    writes = (*(name for name in comment.writes if name in known), *sorted(left))
    return dataclasses.replace(comment, reads=frozenset(reads), writes=writes)


def _mutated(name: str, comment: KernelComment, graph: PrintedGraph) -> str:
    """The input that an epilogue copy of the kernel overwrites; any other name as it is."""
    node = graph.nodes.get(name) if name in comment.origins else None
    if node is None or node.target != _COPY or node.inputs[0] not in graph.inputs:
        return name
    return node.inputs[0]


def _left(comment: KernelComment, graph: PrintedGraph) -> Set[str]:
    """The nodes that a kernel's other nodes do not read, and that it does not write by name."""
    origins = frozenset(comment.origins) & graph.nodes.keys()
    read = {value for name in origins for value in graph.nodes[name].inputs}
    return origins - read - set(comment.writes)


def _computed(
    comment: KernelComment, graph: PrintedGraph, written: Set[str], parts: Set[str]
) -> Set[str]:
    """Return what the first call site computes, by the rule of :mod:`.exact_nodes`.

    Args:
        comment: what stands above the kernel, its buffers resolved.
        graph: the graph.
        written: values that earlier launches wrote.
        parts: nodes of which it reads partial values: it finishes them and knows no inputs.
    """
    origins = frozenset(comment.origins) & graph.nodes.keys()

    def inputs(name: str) -> Sequence[str]:
        return () if name in parts or name not in graph.nodes else graph.nodes[name].inputs

    found: set[str] = set()
    for end in comment.writes:
        stop = comment.reads - parts
        stop = stop if end in written and end not in parts else stop - {end}
        found |= exact_nodes(origins, end, stop, inputs)
    given = found | comment.reads
    told = all(value in given for n in found - parts for value in _read(graph.nodes[n]))
    return found if told else frozenset()


def _read(node: PrintedNode) -> tuple[str, ...]:
    """What a node's kernel must be given; what a copy overwrites need not be read."""
    return node.inputs[1:] if node.target == _COPY else node.inputs
