"""The rule for a batch that could be larger: the peak by what scales with the batch."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from profiler_ext.findings.facts import CannotJudge
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.kineto.op_inputs import inputs_of
from profiler_ext.memory.births import rounds_to
from profiler_ext.memory.pricing import Allocation, MemoryFacts, Remedied
from profiler_ext.memory.recommendations import MemoryFinding, MemoryRule
from profiler_ext.records.memory import CPU, MemoryKind
from profiler_ext.records.vocabulary import Phase

_OWNED = (
    MemoryKind.PARAMETERS,
    MemoryKind.GRADIENTS,
    MemoryKind.OPTIMIZER,
    MemoryKind.BUFFERS,
    MemoryKind.WORKSPACES,
    MemoryKind.COMMUNICATION,
)
_WITH_BATCH = (Phase.FORWARD, Phase.BACKWARD, Phase.GRADIENT_ACCUMULATION, Phase.RECOMPUTE)
_MIN_DIMENSIONS = 3  # of a value whose first dimension is the batch
_KNOWN = 0.9  # of the bytes that scale, so many by their shape
_FREE = 0.05  # of the device is left for the context, libraries and fragments
_MOST_TIMES = 4
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Shapes:
    """What was recorded of shapes: the batch, and the shapes that each block is made of."""

    batch: int
    of_blocks: dict[int, tuple[Shape, ...]]  # by the number of the block

    def scales(self, number: int) -> bool | None:
        """Tell whether a block's shapes have the batch, or a multiple; ``None`` where unknown."""
        shapes = self.of_blocks.get(number)
        if not shapes:
            return None
        return any(size % self.batch == 0 for shape in shapes for size in shape[:1])


def _judge(facts: MemoryFacts) -> Iterable[MemoryFinding] | CannotJudge:
    total = _device_bytes(facts)
    if facts.device == CPU or total is None:
        return CannotJudge("how much memory the device has is not known")
    if facts.uses_graph_pools:
        return CannotJudge("what a CUDA graph's pool holds is not known")
    shapes = _shapes(facts)
    if shapes is None:
        return CannotJudge("no shapes were recorded; record with `run --memory --shapes`")
    scaling, known_bytes = _scaling(facts, shapes)
    at_peak = facts.at_peak(scaling)
    if not at_peak or known_bytes < _KNOWN * at_peak:
        return CannotJudge("of too few blocks the shape is known")
    fits = _largest(facts, scaling, shapes.batch, int((1 - _FREE) * total))
    return () if fits is None else (_finding(facts, scaling, shapes.batch, *fits, total),)


def _device_bytes(facts: MemoryFacts) -> int | None:
    devices = facts.analysis.recording.trace.devices
    own = next((dict(each.properties) for each in devices if each.id == facts.device), {})
    text = own.get("totalGlobalMem", "")
    return int(text) if text.isdigit() else None


def _shapes(facts: MemoryFacts) -> _Shapes | None:
    shapes = {**_of_ops(facts), **_of_nodes(facts)}
    own = (shape for each in shapes.values() for shape in each if len(shape) >= _MIN_DIMENSIONS)
    counts = Counter(shape[0] for shape in own if shape[0] > 1)
    return _Shapes(counts.most_common(1)[0][0], shapes) if counts else None


def _of_nodes(facts: MemoryFacts) -> dict[int, tuple[Shape, ...]]:
    """Return the shape of each block that holds a value of a compiled graph."""
    graphs = facts.analysis.recording.graphs
    nodes = [{node.name: node for node in graph.nodes} for graph in graphs]
    writers = [{b: s.nodes for s in graph.call_sites for b in s.writes} for graph in graphs]
    found = {}
    for number, allocation in enumerate(facts.allocations):
        place = allocation.block.place
        if place.graph is None:
            continue
        stored = (
            [place.node] if place.node else writers[place.graph].get(allocation.block.buffer, ())
        )
        specs = (
            s for n in stored if n in nodes[place.graph] for s in nodes[place.graph][n].outputs
        )
        sizes = [spec.size for spec in specs if spec is not None]
        if sizes:
            found[number] = tuple(tuple(s for s in size if isinstance(s, int)) for size in sizes)
    return found


def _of_ops(facts: MemoryFacts) -> dict[int, tuple[Shape, ...]]:
    """Return the shapes that the op around each block's allocation was given."""
    rows = sorted(
        {row for allocation in facts.allocations for row in facts.rows_around(allocation)}
    )
    trace = facts.analysis.recording.trace
    if not rows:
        return {}
    inputs = inputs_of(trace.raw, trace.events.position[np.array(rows, np.int64)])
    given = {
        row: inputs.distinct[code] for row, code in zip(rows, inputs.codes.tolist(), strict=True)
    }
    found = {}
    for number, allocation in enumerate(facts.allocations):
        for row in facts.rows_around(allocation):
            shapes = tuple(each.sizes for each in given[row] or () if each.sizes)
            if shapes:
                found[number] = shapes
                break
    return found


def _scaling(facts: MemoryFacts, shapes: _Shapes) -> tuple[list[Allocation], int]:
    """Return the blocks that scale, and the bytes at the peak of those known by their shape."""
    weights = defaultdict[str, list[int]](list)
    for each in facts.of_kind(MemoryKind.PARAMETERS):
        weights[each.module] += [each.held_bytes, each.held_bytes // 2]
    scaling, known = [], []
    for number, allocation in enumerate(facts.allocations):
        is_with_batch = allocation.phase in _WITH_BATCH or allocation.kind is MemoryKind.BATCH
        if allocation.kind in _OWNED or not is_with_batch or _is_of_weight(allocation, weights):
            continue
        scales = shapes.scales(number)
        scaling += [allocation] if scales is not False else []
        known += [allocation] if scales else []
    return scaling, facts.at_peak(known)


def _is_of_weight(allocation: Allocation, weights: Mapping[str, list[int]]) -> bool:
    """Tell whether a block has the size of a weight of its module, in 4 bytes a number or in 2."""
    own = weights.get(allocation.module, ())
    return any(rounds_to(each, allocation.size_bytes) for each in own)


def _peak_with(facts: MemoryFacts, scaling: list[Allocation], times: float) -> int:
    def change(remedied: Remedied) -> None:
        for each in scaling:
            remedied.shrink(each, round(times * each.size_bytes))

    return facts.peak_without(change)


def _largest(
    facts: MemoryFacts, scaling: list[Allocation], batch: int, most_bytes: int
) -> tuple[int, int] | None:
    """Return the largest batch that fits, and its peak; none where it is not larger."""
    low, high = batch, _MOST_TIMES * batch
    while low < high:
        middle = (low + high + 1) // 2
        if _peak_with(facts, scaling, middle / batch) <= most_bytes:
            low = middle
        else:
            high = middle - 1
    return None if low <= batch else (low, _peak_with(facts, scaling, low / batch))


def _finding(
    facts: MemoryFacts,
    scaling: list[Allocation],
    batch: int,
    larger: int,
    peak_bytes: int,
    total: int,
) -> MemoryFinding:
    launches = facts.times.launches
    rows = np.flatnonzero(facts.times.in_steps(launches.phase.where(*_WITH_BATCH)))
    per_sample = (peak_bytes - facts.peak_bytes) // (larger - batch)
    return MemoryFinding(
        summary=f"a batch of {larger} would fit in place of {batch}",
        predicted_peak_bytes=peak_bytes,
        extra_ns=facts.price_ns(rows, larger / batch - 1, are_larger=True),
        confidence=Confidence.ESTIMATED,
        remedy=f"a batch of up to {larger}; the learning rate may need to change with it",
        evidence=(
            Figure("batch", batch),
            Figure("larger batch", larger),
            Figure("device memory", total, FigureUnit.BYTES),
            Figure("scales with the batch at the peak", facts.at_peak(scaling), FigureUnit.BYTES),
            Figure("more for each sample", per_sample, FigureUnit.BYTES),
        ),
    )


RULE = MemoryRule(
    name="batch_size",
    title="A batch that could be larger",
    means="The device has memory left, and the peak with a larger batch is known from shapes.",
    because="Parameters, gradients, optimizer state and workspaces stay as they are; activations "
    "and their gradients have the batch as a dimension. Larger products run nearer to the device's "
    "peak.",
    remedy="A larger batch. It changes the training: compare the losses, and the time for each "
    "sample.",
    price="The peak is that of the recorded timeline where the blocks that scale are as much "
    "larger as the batch: those of forward and backward that have not the size of a weight, and "
    "whose shape, where it is known, begins with a multiple of the batch. 90% of their bytes at "
    "the peak must be known by shape: of compiled graphs, and with `--shapes` of eager ops. The "
    "batch is the first dimension of most values with three dimensions or more. 5% of the device "
    "stays free; a batch is at most four times as large. Time is that of forward and backward, as "
    "much longer.",
    judge=_judge,
)
