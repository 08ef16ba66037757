"""Owns what the text of a generated module tells of its call sites' nodes, and no more.

A Triton kernel's comment names the nodes of its first call site. A later site computes a copy
of them, made of what its arguments hold; a library call is the one node of its op that reads
what it is given. A site for which the text leaves several nodes open has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from profiler_ext.capture.sites.wrapper_calls import WrapperCall
from profiler_ext.capture.told.commented_nodes import computed, resolved
from profiler_ext.capture.told.copies import Copy, copies_of
from profiler_ext.capture.told.held_values import HeldValues, storage_of
from profiler_ext.capture.told.kernel_comments import (
    KernelComment,
    kernel_comments,
    kernel_parameters,
    source_names,
)
from profiler_ext.capture.told.mutated_inputs import made_since, mutating
from profiler_ext.capture.told.printed_graphs import PrintedGraph, made_of_tangents
from profiler_ext.capture.traces.views import is_view_op

OUTPUTS = ("out_", "in_out_")
_CALLED_AS = {
    "aten.randint.low_out": "prims.inductor_seeds",
    "aten.bias_addmm": "aten.addmm",
}


@dataclass(frozen=True, slots=True)
class ToldNodes:
    """What the text tells of nodes.

    Attributes:
        of_calls: the nodes of each launch, in graph order; none where the text leaves them open.
        recomputed: nodes of a backward graph that are the forward's.
    """

    of_calls: tuple[tuple[str, ...], ...]
    recomputed: frozenset[str]


def told_nodes(
    source: str, graph: PrintedGraph, calls: Sequence[WrapperCall], *, is_backward: bool
) -> ToldNodes:
    """Return what the text tells of the nodes that a graph's launches compute.

    Args:
        source: the generated module's text.
        graph: the graph that it was generated from.
        calls: its launches, in program order.
        is_backward: it is a backward graph, so that comments name its own nodes.
    """
    walk = _Walk(source, graph, is_backward)
    order = {name: index for index, name in enumerate(graph.nodes)}
    of_calls = tuple(tuple(sorted(walk.nodes_of(c), key=order.__getitem__)) for c in calls)
    return ToldNodes(of_calls, frozenset(walk.recomputed))


class _Walk:
    """Goes through the launches of a wrapper in program order."""

    def __init__(self, source: str, graph: PrintedGraph, is_backward: bool) -> None:
        self._graph, self._is_backward = graph, is_backward
        self._lines = source.splitlines()
        self._values = HeldValues(source, graph)
        self._comments = kernel_comments(source)
        self._roles = kernel_parameters(source)
        self._first: dict[str, _Kernel] = {}
        self._written: set[str] = set()
        self._partial: dict[str, str] = {}
        self._called: set[str] = set()
        self._differentiating = made_of_tangents(graph)
        named = _named_after_forward(self._comments.values()) if is_backward else frozenset()
        self.recomputed = set(named - self._differentiating)

    def nodes_of(self, call: WrapperCall) -> Set[str]:
        """Return the nodes that a launch computes; it must be the next one."""
        if not call.generated:
            return self._library(call)
        if call.callee in self._first:
            return self._again(call, self._first[call.callee])
        if call.callee.startswith("triton_for"):
            return self._foreach(call)
        said = self._comments.get(call.callee)
        comment = said and resolved(said, self._graph, self._written, self._partial)
        if said is None or comment is None:
            for name in filter(None, call.arguments):
                self._values.write(name, None)
            return frozenset()
        return self._new(call, comment, self._parts(said))

    def _parts(self, comment: KernelComment) -> Set[str]:
        """The nodes of which a kernel reads a partial value: it has more elements than theirs."""
        read = {self._partial[n]: spec for n, spec in comment.reads.items() if n in self._partial}
        nodes = self._graph.nodes
        return {n for n, spec in read.items() if storage_of(spec) != storage_of(nodes[n].spec)}

    def _foreach(self, call: WrapperCall) -> Set[str]:
        """A foreach kernel, above which nothing stands, is known by the inputs that it mutates."""
        written = {name for _, name in _arguments(call, self._roles[call.callee], OUTPUTS)}
        read = {name for _, name in _arguments(call, self._roles[call.callee], ("in_",))}
        mutations = mutating(written, self._graph)
        if mutations.keys() != written or not read <= self._graph.inputs.keys():
            return frozenset()
        held = {node for name in read if (node := self._values.node(name)) is not None}
        for name, node in mutations.items():
            self._values.write(name, node)
        return made_since(held, set(mutations.values()), self._graph)

    def _new(self, call: WrapperCall, comment: KernelComment, parts: Set[str]) -> Set[str]:
        nodes = computed(comment, self._graph, self._written, parts)
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
        self._note_recomputed(call, {copy[n] for n in kernel.nodes & self.recomputed if copy})
        return {copy[name] for name in kernel.nodes} if copy else frozenset()

    def _note_recomputed(self, call: WrapperCall, nodes: Set[str]) -> None:
        """Note copies of recomputed nodes; a call's comment names what differentiates itself."""
        if named := source_names(self._heading(call)):
            self.recomputed |= nodes - named - self._differentiating

    def _wrote(self, call: WrapperCall, kernel: _Kernel, copy: Copy) -> None:
        for at, name in kernel.outputs(call):
            node = copy.get(kernel.writes_at.get(at, ""))
            self._values.write(name, node)
        self._written.update(copy[name] for name in kernel.comment.writes if name in copy)

    def _library(self, call: WrapperCall) -> Set[str]:
        op = call.callee.removeprefix("torch.ops.").replace("extern_kernels.", "aten.")
        op = _CALLED_AS.get(op, op)
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
        return self._drawn(node) if node is not None else frozenset()

    def _drawn(self, node: str) -> Set[str]:
        """The seeds of random numbers are the work of the nodes that draw; any other its own."""
        if not self._graph.nodes[node].target.startswith("prims.inductor_seeds"):
            return {node}
        return {other.name for other in self._graph.nodes.values() if node in other.inputs}

    def _made_of(self, names: Iterable[str]) -> Set[str]:
        """The values that a node is given, and those that they are views of."""
        found = set(names)
        for name in names:
            node = self._graph.nodes.get(name)
            if node is not None and is_view_op(node.target):
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
        return _arguments(call, self.comment.parameters, ("in_", "arg_"))

    def outputs(self, call: WrapperCall) -> list[tuple[int, str]]:
        """Return the places and variables of the arguments that it writes."""
        return _arguments(call, self.comment.parameters, OUTPUTS)

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
        # A partial value needs more room than its node does: it is what is left over.
        open_at = [at for at, _ in self.outputs(call) if at not in self.writes_at]
        left = [name for name in self.comment.writes if name not in self.writes_at.values()]
        if len(open_at) == len(left) == 1:
            self.writes_at[open_at[0]] = left[0]

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


def _named_after_forward(comments: Iterable[KernelComment]) -> frozenset[str]:
    """Nodes of a backward graph that comments name after Dynamo's: they are of the forward."""
    pairs = [pair for comment in comments for pair in comment.sources.items()]
    return frozenset(name for source, names in pairs for name in names if name != source)


def _arguments(
    call: WrapperCall, parameters: tuple[str, ...], kinds: tuple[str, ...]
) -> list[tuple[int, str]]:
    names = zip(call.arguments, parameters, strict=False)
    return [(at, a) for at, (a, p) in enumerate(names) if a and p.startswith(kinds)]
