"""What a pattern's node replaced: pattern matching drops ``seq_nr``, stack and source.

Source: ``torch/_inductor/fx_passes/post_grad.py``, ``decompose_scan_to_while_loop``, which traces
bodies again and drops their nodes' places.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.fx

from profiler_ext.capture.traces import metadata
from profiler_ext.capture.traces.creations import Creations
from profiler_ext.records.lineage import Lineage
from profiler_ext.records.provenance import is_view_op
from profiler_ext.torch_compat import fx
from profiler_ext.torch_compat.names import fx_names
from profiler_ext.torch_compat.ops import Call, call_of, call_text, functional_call, writing_call

Report = Callable[..., None]
_REPORTS: WeakKeyDictionary[torch.fx.GraphModule, Report] = WeakKeyDictionary()


@contextmanager
def watching_replacements(gm: torch.fx.GraphModule, on_replace: Report) -> Iterator[None]:
    """Report each replacement in a graph; ``on_replace`` runs inside torch's passes.

    Source: ``torch/fx/graph_module.py``, ``GraphModule._register_replace_node_hook``.
    """
    forget = fx_names.UNREGISTER_REPLACE.of(gm)
    fx_names.REGISTER_REPLACE.of(gm)(on_replace)
    _REPORTS[gm] = on_replace
    try:
        yield
    finally:
        del _REPORTS[gm]
        forget(on_replace)


@contextmanager
def unreported(node: torch.fx.Node) -> Iterator[None]:
    """Report no replacement in the graph of a node.

    The new node may be a number, as for a Python float that cannot become a tensor; with a hook
    registered torch asks for its name, and fails.

    Source: ``torch/fx/node.py``, ``Node.replace_all_uses_with``.
    """
    gm = node.graph.owning_module
    report = None if gm is None else _REPORTS.get(gm)
    if gm is None or report is None:
        yield
        return
    fx_names.UNREGISTER_REPLACE.of(gm)(report)
    try:
        yield
    finally:
        fx_names.REGISTER_REPLACE.of(gm)(report)


class _Before(NamedTuple):
    meta: fx.Meta
    inputs: tuple[str, ...]
    call: Call
    place: int


@dataclass(slots=True)
class Watch:
    """A watch over the passes that run on one graph.

    From a new node the walk leads back through the replaced nodes and those erased with them, in
    the same half of the joint graph, up to another new node: one match may feed the next.
    """

    gm: torch.fx.GraphModule
    known: metadata.Replaced = field(default_factory=dict)  # by earlier passes
    at_joint: metadata.Replaced = field(default_factory=dict)  # by the joint passes
    overwritten: Mapping[str, Lineage] = field(default_factory=dict)  # before those overwrote it
    _before: dict[str, _Before] = field(default_factory=dict)
    _old_of: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _snapshots: dict[str, metadata.NodeSnapshot] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._before = {
            node.name: _Before(
                dict(node.meta), tuple([i.name for i in node.all_input_nodes]), call_of(node), place
            )
            for place, node in enumerate(self.gm.graph.nodes)
            if node.op == "call_function"
        }

    def before(self, node: torch.fx.Node) -> Lineage:
        """Return a node's lineage before the passes, with what an earlier pass lost."""
        if node.name in self._before:
            return self._snapshot_before(node.name).lineage
        return metadata.lineage_of(node.meta)

    def _snapshot_before(self, name: str) -> metadata.NodeSnapshot:
        if name not in self._snapshots:
            own = metadata.snapshot_with_outputs(name, self._before[name].meta)
            if (was := self.overwritten.get(name)) is not None:
                own = replace(own, lineage=own.lineage.traced_from(was))
            earlier = self.known.get(name, ()) or self.at_joint.get(name, ())
            self._snapshots[name] = own.filled_by(earlier)
        return self._snapshots[name]

    def note(self, old: Any, new: Any, user: Any) -> None:
        """Note one replacement, as FX reports it."""
        self._old_of[fx.node_name(new)].append(fx.node_name(old))

    def made(self) -> tuple[str, ...]:
        """Return the names of the nodes that these or known passes made."""
        calls = (node.name for node in fx.call_nodes(self.gm.graph))
        return tuple(name for name in calls if name not in self._before or name in self.known)

    def replaced(self) -> metadata.Replaced:
        """Return, for each node the passes made, what it replaced; the last one counts most.

        In graph order, except: views come first, and in a backward the rest is reversed (an
        attention's place is its last product). The op whose name torch gave the new node comes
        later (the product that is padded). A node that made the very same call comes last (the
        scale of a softmax that a pattern rewrote; of several, the one of the same value).

        Source: ``torch/_inductor/pattern_matcher.py``, ``_transfer_meta``, copies the op.
        """
        nodes = {node.name: node for node in fx.call_nodes(self.gm.graph)}
        made = [node for name, node in nodes.items() if name not in self._before]
        live = set(nodes)
        old = {node.name: self._old(node.name) for node in made}
        rows = {node.name: self._rows(node, live, old) for node in made}
        rows = {**self._written(made, live), **{name: row for name, row in rows.items() if row}}
        still = {name: row for name, row in self.known.items() if name in live}
        return {**still, **self._of_memory(made, rows), **rows}

    def _of_memory(self, made: list[torch.fx.Node], rows: metadata.Replaced) -> metadata.Replaced:
        """Return what calls that write to memory replaced, and the views they use.

        A bucket is filled that way, and a view's gradient scattered: there the memory took the
        scatter's place (``torch/_inductor/fx_passes/reinplace.py``,
        ``_decompose_scatter_mutating``).
        """
        replaced: dict[str, tuple[metadata.NodeSnapshot, ...]] = {}
        for node in filter(_writes, made):
            *value_path, memory = self._to_memory(node, rows)
            row = rows.get(memory.name, ()) or self._scattered(node, memory)
            for each in value_path if row else ():
                if each is node or is_view_op(fx.target_name(each.target)):
                    replaced[each.name] = row
        return replaced

    def _to_memory(self, node: torch.fx.Node, rows: metadata.Replaced) -> list[torch.fx.Node]:
        """Return a call that writes, and the path to the memory or a known node."""
        value_path, known = [node, *node.all_input_nodes[:1]], rows.keys() | self._before.keys()
        while value_path[-1].name not in known and value_path[-1].all_input_nodes:
            value_path.append(value_path[-1].all_input_nodes[0])
        return value_path

    def _scattered(
        self, node: torch.fx.Node, memory: torch.fx.Node
    ) -> tuple[metadata.NodeSnapshot, ...]:
        """Return the one call that memory replaced, among the users of what is written."""
        written = {name for value in node.all_input_nodes[1:] for name in self._names(value.name)}
        removed = self._old(memory.name) & set(self._before)
        same = [name for name in removed if written & set(self._before[name].inputs)]
        return (self._snapshot_before(same[0]),) if len(same) == 1 else ()

    def _names(self, name: str) -> set[str]:
        return {name} | self._old(name)

    def _written(self, made: list[torch.fx.Node], live: set[str]) -> metadata.Replaced:
        """Return the functional calls that in-place calls were made from; nothing reads those.

        Source: ``torch/_inductor/fx_passes/post_grad.py``, ``decompose_auto_functionalized`` and
        ``decompose_triton_kernel_wrapper_functional``.
        """
        removed: dict[Hashable, list[metadata.NodeSnapshot]] = defaultdict(list)
        new: dict[Hashable, list[str]] = defaultdict(list)
        for name in (name for name in self._before if name not in live):
            if (functional := functional_call(self._before[name].call)) is not None:
                removed[functional].append(self._snapshot_before(name))
        for node in made:
            new[writing_call(node)].append(node.name)
        same = [each for each in removed if len(removed[each]) == len(new[each])]
        return {n: (row,) for each in same for n, row in zip(new[each], removed[each], strict=True)}

    def overwritten_nodes(self, creations: Creations) -> Mapping[str, metadata.NodeSnapshot]:
        """Return the nodes whose metadata was overwritten by that of a removed no-op.

        Source: ``torch/fx/node.py``, ``replace_all_uses_with(propagate_meta=True)``.
        """
        metas = {name: creation.meta for name, creation in creations.items()}
        metas |= {node.name: node.meta for node in self.gm.graph.nodes}
        changed = (
            name
            for name, before in self._before.items()
            if name not in self.known and _is_overwritten(before.meta, metas.get(name, before.meta))
        )
        return {name: self._snapshot_before(name) for name in changed}

    def _rows(
        self, node: torch.fx.Node, live: set[str], old: Mapping[str, set[str]]
    ) -> tuple[metadata.NodeSnapshot, ...]:
        seeds = _nearest([node], old, lambda new: new.users)
        if not seeds:
            return ()
        read = _nearest(node.all_input_nodes, old, lambda new: new.all_input_nodes)
        erased = self._erased(seeds, live, read)
        tag = fx_names.PARTITIONER_TAG.of(node.meta)
        tags = {name: self._snapshot_before(name).lineage.partitioner_tag for name in erased}
        # A node without a tag, as of a hook's sum, is in no half, and replaced all of them.
        same = [name for name in erased if tag in (None, tags[name])]
        call, op = call_text(call_of(node)), fx.original_aten(node.meta)
        values = {name for each in node.all_input_nodes for name in self._names(each.name)}
        target = fx.target_name(node.target)
        # A backward is reversed: its first op is of the forward's last.
        direction = -1 if "_backward" in target else 1

        def sort_key(name: str) -> tuple[bool, bool, bool, bool, int]:
            was = self._before[name]
            is_call = call_text(was.call) == call
            is_of_same = is_call and values.issuperset(was.inputs)
            is_op = op is not None and fx.original_aten(was.meta) == op
            is_work = not is_view_op(str(fx.original_aten(was.meta)))
            is_as_much = is_work or is_view_op(target)
            return is_call, is_of_same, is_op, is_as_much, direction * was.place

        return tuple(map(self._snapshot_before, sorted(same or erased, key=sort_key)))

    def _old(self, new: str) -> set[str]:
        """The nodes that a node replaced, directly or through erased ones."""
        old: set[str] = set()
        todo = [new]
        while todo:
            fresh = set(self._old_of.get(todo.pop(), ())) - old
            old |= fresh
            todo += fresh
        return old

    def _erased(self, seeds: set[str], live: set[str], read: set[str]) -> set[str]:
        """The nodes erased for a new node: the replaced ones and those removed with them."""
        erased: set[str] = set()
        todo = list(seeds)
        while todo:
            name = todo.pop()
            if name in erased:
                continue
            erased.add(name)
            todo += self._old_of.get(name, [])
            if name in self._before:
                todo += [i for i in self._before[name].inputs if i not in live and i not in read]
        return erased & set(self._before)


def _is_overwritten(before: fx.Meta, after: fx.Meta) -> bool:
    if metadata.has_same_origin(before, after):
        return False
    was, now = metadata.lineage_of(before), metadata.lineage_of(after)
    return now is not was and now.traced_from(was) != now


def _writes(node: torch.fx.Node) -> bool:
    """Tell whether a node only writes to another's memory: nothing reads it."""
    return not node.users and writing_call(node) is not None


def _nearest(
    start: Iterable[torch.fx.Node],
    old: Mapping[str, set[str]],
    following: Callable[[torch.fx.Node], Iterable[torch.fx.Node]],
) -> set[str]:
    """What new nodes replaced; for one that replaced nothing (``getitem``), its neighbours'."""
    nearest: set[str] = set()
    seen: set[str] = set()
    todo = list(start)
    while todo:
        node = todo.pop()
        if node.name in old and node.name not in seen:
            seen.add(node.name)
            nearest |= old[node.name]
            todo += () if old[node.name] else following(node)
    return nearest


Carried = Mapping[str, tuple[torch.fx.Graph, ...]]


def carried_graphs(gm: torch.fx.GraphModule) -> Carried:
    """Return the graphs that each node of a graph calls, by node name."""
    return {node.name: graphs for node in gm.graph.nodes if (graphs := _graphs(node))}


def _graphs(call: torch.fx.Node) -> tuple[torch.fx.Graph, ...]:
    return tuple(module.graph for _, module in fx.nested(call))


def retraced(
    gm: torch.fx.GraphModule, replaced: metadata.Replaced, before: Carried
) -> dict[torch.fx.Graph, metadata.Replaced]:
    """Return what the nodes of bodies that the passes made were traced from."""
    of_bodies: dict[torch.fx.Graph, metadata.Replaced] = {}
    for call in gm.graph.nodes:
        rows = [row for row in replaced.get(call.name, ()) if row.name in before]
        if call.op == "call_function" and len(rows) == 1:
            of_bodies.update(_inside(call, before[rows[0].name], rows[0]))
    return of_bodies


def _inside(
    call: torch.fx.Node, before: Sequence[torch.fx.Graph], row: metadata.NodeSnapshot
) -> dict[torch.fx.Graph, metadata.Replaced]:
    """Return the same for all graphs in a call that replaced a call of other graphs."""
    graphs = _graphs(call)
    is_alike = len(graphs) == len(before)  # the branches of a ``cond`` keep their order
    replaced: dict[torch.fx.Graph, metadata.Replaced] = {}
    for at, graph in enumerate(graphs):
        nodes = fx.call_nodes(graph)
        bodies = before[at : at + 1] if is_alike else before
        own = _only_copy([fx.call_nodes(body) for body in bodies], nodes)
        rows = {
            n: metadata.snapshot_with_outputs(own[n].name, own[n].meta) if n in own else row
            for n in nodes
        }
        replaced[graph] = {node.name: (rows[node],) for node in nodes}
        for node in nodes:
            replaced.update(_inside(node, _graphs(own[node]) if node in own else (), rows[node]))
    return replaced


def _only_copy(
    bodies: Sequence[Sequence[torch.fx.Node]], nodes: Sequence[torch.fx.Node]
) -> Mapping[torch.fx.Node, torch.fx.Node]:
    """Match nodes to a body's, if exactly one run of them has its ops and edges."""
    copies = [
        dict(zip(run, body, strict=True))
        for body in bodies
        for run in (nodes[at : at + len(body)] for at in range(len(nodes) - len(body) + 1))
        if body and _shape(run) == _shape(body)
    ]
    return copies[0] if len(copies) == 1 else {}


def _shape(nodes: Sequence[torch.fx.Node]) -> list[tuple[object, list[int | None]]]:
    place = {node: at for at, node in enumerate(nodes)}
    return [(node.target, [place.get(i) for i in node.all_input_nodes]) for node in nodes]
