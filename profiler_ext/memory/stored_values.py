"""The values that call sites of compiled graphs store in blocks that their wrappers allocate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from profiler_ext.attribution.enclosing import CallContext
from profiler_ext.attribution.phases import call_phase
from profiler_ext.attribution.places import PlaceTable
from profiler_ext.attribution.trace.lookups import NO_ROW
from profiler_ext.memory.wrappers import ITEM_BYTES, Statement, Wrapper, saved_values
from profiler_ext.records.analysis import Place
from profiler_ext.records.memory import BirthEvidence, MemoryGap
from profiler_ext.records.provenance import (
    CallSite,
    FxNode,
    GraphInstance,
    TensorSpec,
    is_view_op,
)
from profiler_ext.records.recording import GeneratedModule
from profiler_ext.records.vocabulary import Level


@dataclass(frozen=True, slots=True)
class Birth:
    """Where a block was allocated."""

    place: Place
    evidence: BirthEvidence | None = None
    kernel: str = ""  # of the call site
    buffer: str = ""  # the wrapper's name
    row: int = NO_ROW  # innermost CPU event around it
    is_workspace: bool = False


class StoredValues:
    """The value in a block, by the wrapper's statement that allocates it."""

    def __init__(
        self,
        graphs: Sequence[GraphInstance],
        generated: Iterable[GeneratedModule],
        places: PlaceTable,
    ) -> None:
        texts = {path: module.text for module in generated for path in module.paths}
        self._graphs, self._places = graphs, places
        self._wrappers = {path: Wrapper(text) for path, text in texts.items()}
        self._stored = _StoredNodes(graphs)
        self._saved = [self._saved_of(each) for each in graphs]

    def _saved_of(self, graph: GraphInstance) -> dict[str, str]:
        """Return the node in each buffer that a forward graph saves for its backward."""
        backwards = [
            each
            for each in self._graphs
            if graph.joint is not None and each.joint == graph.joint and each.runs_backward
        ]
        forward = self.wrapper(graph)
        backward = self.wrapper(backwards[0]) if len(backwards) == 1 else None
        if graph.runs_backward or forward is None or backward is None:
            return {}
        return saved_values(forward, backward, frozenset(forward.arguments))

    def wrapper(self, graph: GraphInstance) -> Wrapper | None:
        """Return the wrapper of a graph, if its code was kept."""
        return self._wrappers.get(graph.output_module or "")

    def is_saved(self, graph: int, buffer: str) -> bool:
        """Tell whether a forward graph hands a buffer to its backward."""
        return buffer in self._saved[graph]

    def statement(self, graph: GraphInstance, lines: Iterable[int]) -> Statement | None:
        """Return the first statement of a graph's wrapper at one of some lines."""
        wrapper = self.wrapper(graph)
        return None if wrapper is None else next(filter(None, map(wrapper.at_line, lines)), None)

    def of_statement(
        self, number: int, context: CallContext, statement: Statement, size_bytes: int
    ) -> Birth | None:
        """Return the value in the block that a statement allocates, if a call site stores it."""
        graph = self._graphs[number]
        wrapper = self.wrapper(graph)
        for buffers in () if wrapper is None else wrapper.buffers(statement):
            own = (s for s in graph.call_sites if not {*buffers}.isdisjoint(s.writes))
            if (site := next(own, None)) is not None:
                birth = self.at_site(number, context, site, buffers, size_bytes)
                return replace(birth, is_workspace=statement.is_workspace)
        return None

    def at_site(
        self,
        number: int,
        context: CallContext,
        site: CallSite,
        buffers: Sequence[str],
        size_bytes: int,
    ) -> Birth:
        """Return the place of the value that a call site stores in a block."""
        graph = self._graphs[number]
        written = [each for each in site.writes if each in buffers]
        buffer = written[0] if len(written) == 1 else ""
        nodes = self._stored.nodes(number, site, size_bytes)
        saved = self._saved[number].get(buffer)
        if len(nodes) > 1 and saved is not None:
            viewed = self._stored.viewed(number, saved)
            nodes = [viewed] if viewed in site.nodes else nodes
        places = [self._places.of_node(number, node, context) for node in nodes]
        lines = {(each.file, each.line, each.module, each.gap) for each in places}
        if len(lines) == 1:
            return Birth(places[-1], kernel=site.kernel, buffer=buffer)
        modules = {(each.module, each.module_class) for each in places}
        module, module_class = modules.pop() if len(modules) == 1 else (None, None)
        place = Place(
            graph=number,
            phase=places[-1].phase if places else call_phase(graph, context),
            module=module,
            module_class=module_class,
            level=Level.OP,
            gap=MemoryGap.SEVERAL_VALUES if places else MemoryGap.NO_CALL_SITE,
        )
        return Birth(place, kernel=site.kernel, buffer=buffer)


class _StoredNodes:
    """Which nodes of a call site may be the value of a buffer.

    A kernel with one buffer stores its last node. Of a kernel with several, those that another call
    site, or the backward, reads, and the last one.
    """

    def __init__(self, graphs: Sequence[GraphInstance]) -> None:
        self._graphs = graphs
        self._known = [{node.name: node for node in graph.nodes} for graph in graphs]
        self._read_later: dict[str, set[str]] = defaultdict(set)
        for graph in graphs:
            own = {node.name for node in graph.nodes}
            if graph.joint is not None and graph.runs_backward:
                for node in graph.nodes:
                    self._read_later[graph.joint] |= {*node.inputs} - own

    def viewed(self, number: int, name: str) -> str:
        """Return the node that a view is of, through any views."""
        known = self._known[number]
        while name in known and is_view_op(known[name].target) and known[name].inputs:
            name = known[name].inputs[0]
        return name

    def nodes(self, number: int, site: CallSite, size_bytes: int) -> list[str]:
        """Return the nodes in program order; several are of one size."""
        if len(site.writes) <= 1:
            return [*site.nodes[-1:]]
        graph, known = self._graphs[number], self._known[number]
        own = {*site.nodes}
        read = {name for node in graph.nodes if node.name not in own for name in node.inputs}
        read |= self._read_later.get(graph.joint or "", set())
        stored = [each for each in site.nodes if each in read or each == site.nodes[-1]]
        fitting = [each for each in stored if each in known and _fits(known[each], size_bytes)]
        return fitting or stored


def _fits(node: FxNode, size_bytes: int) -> bool:
    """Tell whether a node has an output of a block's size, or one of an unknown size."""
    sizes = [_bytes(spec) for spec in node.outputs]
    return any(each is None or _rounds_to(each, size_bytes) for each in sizes)


_ROUNDED_BYTES = 512
"""Source: ``c10/cuda/CUDACachingAllocator.h``, ``kMinBlockSize``."""
_UNSPLIT_BYTES = 1 << 20
"""A block of the large pool keeps a rest that is not larger: ``kSmallSize``."""


def _rounds_to(size_bytes: int, block_bytes: int) -> bool:
    """Tell whether the allocator gives a block of this size for so many bytes."""
    if size_bytes > block_bytes:
        return False
    room_bytes = _UNSPLIT_BYTES if size_bytes > _UNSPLIT_BYTES else 0
    return block_bytes - size_bytes <= room_bytes + _ROUNDED_BYTES - 1


def _bytes(spec: TensorSpec) -> int | None:
    item = ITEM_BYTES.get(spec.dtype.removeprefix("torch."))
    sizes = [each for each in spec.size if isinstance(each, int)]
    strides = [each for each in spec.stride if isinstance(each, int)]
    if item is None or len(sizes) < len(spec.size) or len(strides) < len(spec.stride):
        return None
    if 0 in sizes:
        return 0
    return item * (1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)))
