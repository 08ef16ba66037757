"""The rule for kernels that a setting or an edit makes one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, location_of
from profiler_ext.findings.finding import NOWHERE, Confidence, Figure, FigureUnit
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Ints
from profiler_ext.records.provenance import GraphInstance, is_view_op
from profiler_ext.records.vocabulary import FusionBarrier, LaunchKind, Phase, Scope, SiteKind
from profiler_ext.rooflines.intermediates import (
    CrossingBuffer,
    PassedBuffer,
    Side,
    can_be_template,
    crossing_buffers,
    kernel_sides,
    memory_bytes_per_ns,
    passed_buffers,
    peak_bytes_per_ns,
    saved_bytes,
)

_POINTWISE: Final = "triton_poi_"  # Source: ``torch/_inductor/codegen/triton.py``
_ELEMENTWISE, _COMPLEX = "elementwise_kernel", "c10::complex"
# Namespaces of ops that are no pointwise op of somebody's
_LIBRARIES: Final = ("aten", "prims", "inductor", "c10d", "_c10d_functional", "fsdp", "symm_mem")
_CONVERSION: Final = "prims.convert_element_type.default"
# Inductor's limits: ``max_pointwise_cat_inputs``, ``realize_reads_threshold``
_MAX_CAT, _MAX_READS = 8, 4
_LIMIT: Final = 16  # what is enough for most, and what `profiler-ext try` measures
# The prologue of a template may load so much more than it stores
_PROLOGUE_FACTOR: Final = 1.1
# A kernel that reaches this part of the memory's peak waits for nothing else
_MEMORY_BOUND: Final = 0.5
_COPY: Final = "Memcpy DtoD"
_MAX_EAGER, _MIN_EAGER_NS = 3, 10_000  # launches from one graph to the next, and their time
_PER_COMBO, _MIN_SMALL = 8, 16  # ``combo_kernel_max_num_nodes``
_MAX_SMALL_NS, _COMBO_NS = 6_000, 3_000  # a combined kernel has its fixed time once
_FULL: Final = 0.8  # small kernels of a CUDA graph are apart by a third of their time
_EDITS: Final[Mapping[str, str]] = {
    "aten.as_strided.default": "take the slices that it is made of: as_strided reads memory",
    "aten.avg_pool2d.default": "where windows do not overlap take the mean of a view "
    "(unflatten, mean): avg_pool2d reads memory",
}


@dataclass(frozen=True, slots=True)
class _Kind:
    """What keeps kernels apart, and what to try."""

    summary: str
    remedy: str = ""


_ONE_GRAPH = _Kind(
    "two calls of compiled graphs pass a buffer that one graph would not need",
    "compile one function around both calls",
)
_NO_BREAK: Final = "remove the graph break: fullgraph=True makes each of them an error with hints"
_EAGER = _Kind(
    "an eager op between two compiled graphs reads and writes what one kernel would keep",
    "compile one function around all three",
)
_CUSTOM = _Kind(
    "an op that Inductor cannot fuse stands between ops that it can",
    "write it with PyTorch ops, if it is pointwise or a reduction: Inductor fuses them with what "
    "is around",
)
_COMPLEX_OP = _Kind(
    "complex numbers are computed by library kernels, which are fused with nothing",
    "compute with the real and imaginary parts: Inductor generates no code for complex numbers",
)
_CAT = _Kind("a concatenation is copied to memory for a kernel that could read its parts")
_READS = _Kind("a value that depends on many inputs is written to memory for a kernel to read")
_VIEW = _Kind("a view needs its input in memory, so that what is around it is two kernels")
_ORDER = _Kind(
    "two kernels access a buffer in different order, and Inductor may not reorder their loops",
    'torch.compile(..., options={"loop_ordering_after_fusion": True})',
)
_TEMPLATE = _Kind(
    "a matrix product is bound by memory, and another kernel converts its input",
    'torch.compile(..., options={"max_autotune": True}): a Triton template converts as it loads',
)
_SMALL = _Kind(
    "small independent kernels run one after the other",
    'torch.compile(..., options={"combo_kernels": True})',
)


@dataclass(frozen=True, slots=True)
class _Passes:
    """Kernels of which one is to be left, and what each pass would save."""

    launches: Ints  # of all of them
    calls: Ints  # one for each pass
    saved_bytes: float
    removed_ns: float = 0.0  # time of a pass that is not the traffic of these bytes
    sets_pace: bool = False  # whatever the recording shows: a CUDA graph fills the step


@dataclass(slots=True)
class _Missed:
    """A kind of missed fusion at two lines."""

    kind: _Kind
    remedy: str
    at: Place | None
    kernels: tuple[str, str]
    reason: str
    passes: list[_Passes] = field(default_factory=list)


class _Collected:
    """What is missed, by kind and lines."""

    def __init__(self, facts: Facts, bytes_per_ns: float) -> None:
        self.facts, self.bytes_per_ns = facts, bytes_per_ns
        self.order = _Order(facts)
        self._by_key: dict[tuple[object, ...], _Missed] = {}

    def add(
        self,
        kind: _Kind,
        ends: Sequence[tuple[Place | None, str]],
        passes: _Passes,
        *,
        remedy: str = "",
        reason: str = "",
    ) -> None:
        """Add passes between two kernels; the finding is at the line of the last."""
        (first, stores), (second, loads) = ends
        key = (kind, remedy, _line(first), _line(second))
        names = (_named(stores, first), _named(loads, second))
        new = _Missed(kind, remedy or kind.remedy, second or first, names, reason)
        self._by_key.setdefault(key, new).passes.append(passes)

    def add_buffer(self, kind: _Kind, each: PassedBuffer, moved: int, remedy: str = "") -> None:
        """Add a buffer within a graph."""
        launches = np.union1d(each.writer.launches, each.reader.launches)
        passes = _Passes(launches, each.calls, moved)
        self.add(
            kind, (_end(each.writer), _end(each.reader)), passes, remedy=remedy, reason=each.reason
        )

    def candidates(self) -> Iterator[Candidate]:
        """Yield the candidates: time counts as far as the device sets the pace."""
        for missed in self._by_key.values():
            yield _candidate(self.facts, missed, self.bytes_per_ns)


def _end(side: Side) -> tuple[Place | None, str]:
    return side.place, side.site.kernel


def _line(place: Place | None) -> tuple[str | None, int | None]:
    return (place.file, place.line) if place else (None, None)


def _named(kernel: str, place: Place | None) -> str:
    if place is None or place.file is None:
        return kernel
    return f"{kernel} ({Path(place.file).name}:{place.line})"


def _candidate(facts: Facts, missed: _Missed, bytes_per_ns: float) -> Candidate:
    launches = np.unique(np.concatenate([each.launches for each in missed.passes]))
    calls = np.concatenate([each.calls for each in missed.passes])
    counts = [len(each.calls) for each in missed.passes]
    moved = np.repeat([each.saved_bytes for each in missed.passes], counts)
    saved_ns = moved / bytes_per_ns + np.repeat([p.removed_ns for p in missed.passes], counts)
    sets_pace = np.repeat([each.sets_pace for each in missed.passes], counts)
    is_critical = sets_pace | facts.pace.is_critical[calls]
    critical_ns = np.where(is_critical, saved_ns, 0).astype(np.int64)
    took_ns = facts.median_per_step(launches, facts.launches.duration_ns[launches])
    most_ns = facts.median_per_step(launches, facts.critical_ns(launches))
    most_ns = took_ns if sets_pace.all() else most_ns
    figures = [
        Figure("kernels", " and ".join(missed.kernels), FigureUnit.TEXT),
        Figure("launches a step", facts.launches_per_step(launches)),
        Figure("they take", took_ns, FigureUnit.NS),
    ]
    if moved_bytes := facts.median_per_step(calls, moved.astype(np.int64)):
        figures.append(Figure("memory traffic to save", moved_bytes, FigureUnit.BYTES))
    if missed.reason:
        figures.append(Figure("reason", missed.reason, FigureUnit.TEXT))
    return Candidate(
        summary=missed.kind.summary,
        est_saving_ns=min(facts.median_per_step(calls, critical_ns), most_ns),
        confidence=Confidence.ESTIMATED,
        remedy=missed.remedy,
        location=location_of(missed.at) if missed.at else NOWHERE,
        evidence=tuple(figures),
        launches=launches,
    )


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    if not facts.analysis.recording.graphs:
        return CannotJudge("nothing was compiled")
    rate = memory_bytes_per_ns(facts.analysis)
    if rate is None:
        return CannotJudge("no generated kernel moves enough bytes to measure the memory by")
    collected = _Collected(facts, rate)
    buffers: dict[tuple[int, str], list[PassedBuffer]] = defaultdict(list)
    for each in passed_buffers(facts.analysis):
        buffers[each.graph, each.passed.buffer].append(each)
    for (at, _), own in buffers.items():
        _add_limits(collected, facts.analysis.recording.graphs[at], own)
        _add_templates(collected, facts.analysis.recording.graphs[at], own)
    _add_library_ops(collected)
    for crossing in () if _is_sharded(facts) else crossing_buffers(facts.analysis):
        _add_crossing(collected, crossing)
    _add_eager(collected)
    for at, graph in enumerate(facts.analysis.recording.graphs):
        _add_small(collected, at, graph)
    return tuple(collected.candidates())


def _is_generated(side: Side) -> bool:
    return side.site.kind is SiteKind.TRITON


def _is_pointwise(side: Side) -> bool:
    return _is_generated(side) and side.site.kernel.startswith(_POINTWISE)


def _add_limits(
    collected: _Collected, graph: GraphInstance, buffer: Sequence[PassedBuffer]
) -> None:
    """Add a buffer that a limit, an option or a view keeps between generated kernels."""
    first = buffer[0]
    if not all(_is_generated(each.writer) and _is_generated(each.reader) for each in buffer):
        return
    readers = {each.passed.reader for each in buffer}
    writers = {each.passed.writer for each in buffer}
    moved = saved_bytes(first.passed, len(readers))
    parts = len(writers) if len(writers) > 1 else _parts(first)
    if parts > _MAX_CAT and len(readers) == 1 and _is_pointwise(first.reader):
        remedy = _option("max_pointwise_cat_inputs", parts)
        for each in buffer:  # that it masks its loads costs the kernel about the store's time
            collected.add_buffer(_CAT, each, each.passed.read_bytes, remedy)
    elif len(writers) > 1:
        return
    elif (edit := _view_edit(graph, first)) is not None and len(readers) == 1:
        collected.add_buffer(_VIEW, first, moved, edit)
    elif _is_off(graph, "loop_ordering_after_fusion"):
        for each in buffer:
            if each.barrier is FusionBarrier.ACCESS_ORDER:
                collected.add_buffer(_ORDER, each, moved)
    elif len(readers) == 1 and not first.passed.is_kept and _is_recomputable(graph, first):
        remedy = _option("realize_reads_threshold", len(first.writer.site.reads))
        collected.add_buffer(_READS, first, moved, remedy)


def _parts(each: PassedBuffer) -> int:
    """Return of how many parts one kernel makes a concatenation: it stores no whole buffer."""
    stored = each.writer.site.writes
    return 1 if each.passed.buffer in stored else len(stored)


def _option(name: str, count: int) -> str:
    value = max(count, _LIMIT)
    return f'torch.compile(..., options={{"{name}": {value}}})'


def _is_off(graph: GraphInstance, *options: str) -> bool:
    """Tell whether options of Inductor are off; some are always on where they were recorded."""
    on = graph.record.fusion_options
    return bool(on) and not set(options) & set(on)


def _is_recomputable(graph: GraphInstance, each: PassedBuffer) -> bool:
    """Tell whether a pointwise value of many inputs is loaded through views of it, as by slices."""
    is_apart = each.barrier in (FusionBarrier.ACCESS_ORDER, FusionBarrier.LOOP_SIZES)
    are_pointwise = _is_pointwise(each.writer) and _is_pointwise(each.reader)
    is_of_many = len(each.writer.site.reads) > _MAX_READS
    users = _users_of(graph, each)
    return is_apart and are_pointwise and is_of_many and all(map(is_view_op, users))


def _users_of(graph: GraphInstance, each: PassedBuffer) -> list[str]:
    """Return the ops of the kernel that loads a buffer which take what the other one computes."""
    stored, loaded = set(each.writer.site.nodes), set(each.reader.site.nodes)
    nodes = (node for node in graph.record.nodes if node.name in loaded - stored)
    return [node.target for node in nodes if stored & set(node.inputs)]


def _view_edit(graph: GraphInstance, each: PassedBuffer) -> str | None:
    """Return what to write in place of a view of a pointwise kernel's output, if it is one."""
    if not _is_pointwise(each.writer) or not _is_pointwise(each.reader):
        return None
    return next(filter(None, map(_EDITS.get, _users_of(graph, each))), None)


def _add_templates(
    collected: _Collected, graph: GraphInstance, buffer: Sequence[PassedBuffer]
) -> None:
    """Add a buffer that is converted for a product that waits for memory.

    Nothing is said of what follows a product: a template with such an epilogue was no faster.
    """
    if len(buffer) != 1 or not _is_off(graph, "max_autotune", "max_autotune_gemm"):
        return
    (each,) = buffer
    facts = collected.facts
    if graph.record.autotuned_at(each.reader.site) is not None:
        return  # templates were timed, and lost
    is_prologue = _is_product(each.reader) and _is_widening(facts, graph, each)
    if is_prologue and _waits_for_memory(facts, each.reader):
        collected.add_buffer(_TEMPLATE, each, saved_bytes(each.passed, 1))


def _is_product(side: Side) -> bool:
    """Tell whether a library computes a matrix product; templates of convolutions are slower."""
    return can_be_template(side.site) and "convolution" not in (side.site.op or "")


def _is_widening(facts: Facts, graph: GraphInstance, each: PassedBuffer) -> bool:
    """Tell whether a kernel only converts to a dtype that is no smaller.

    Inductor takes no other op of bfloat16 into a template's loads.
    """
    if not _is_pointwise(each.writer):
        return False
    targets = {node.target for node in graph.record.nodes if node.name in each.writer.site.nodes}
    passes = max(len(each.calls), 1)
    moved = int(facts.rooflines.bytes[each.writer.launches].filled(0).sum()) / passes
    loaded = moved - each.passed.written_bytes
    return targets == {_CONVERSION} and loaded <= _PROLOGUE_FACTOR * each.passed.written_bytes


def _waits_for_memory(facts: Facts, side: Side) -> bool:
    known = facts.rooflines
    memory = known.bandwidth_fraction[side.launches].filled(0).max()
    arithmetic = known.arithmetic_fraction[side.launches].filled(0).max()
    return bool(memory >= _MEMORY_BOUND and memory > arithmetic)


def _add_library_ops(collected: _Collected) -> None:
    """Add ops of a graph that are fused with nothing, and stand beside generated kernels."""
    facts = collected.facts
    around: dict[tuple[int, int], list[PassedBuffer]] = defaultdict(list)
    for each in passed_buffers(facts.analysis):
        if _is_generated(each.reader):
            around[each.graph, each.passed.writer].append(each)
        if _is_generated(each.writer):
            around[each.graph, each.passed.reader].append(each)
    for key, side in kernel_sides(facts.analysis).items():
        if (kind := _kind_of_op(facts, side)) is not None:
            op = side.site.op or side.site.kernel
            passes = _passes_around(collected, side, around[key])
            reason = f"Inductor generates no code for {op}"
            if len(passes.calls):
                collected.add(kind, ((side.place, op),) * 2, passes, reason=reason)


def _kind_of_op(facts: Facts, side: Side) -> _Kind | None:
    """Return what kind of op that could be fused a library call or a kernel of the user's is."""
    name = facts.launches.name
    own = {name[int(row)] for row in side.launches}
    namespace = (side.site.op or "").rpartition("::")[0]
    is_pointwise = all(_ELEMENTWISE in each for each in own)
    if side.site.kind is SiteKind.USER_TRITON:
        return _CUSTOM if _waits_for_memory(facts, side) else None
    if side.site.kind is not SiteKind.EXTERN:
        return None
    if is_pointwise and any(_COMPLEX in each for each in own):
        return _COMPLEX_OP
    is_own = bool(namespace) and namespace not in _LIBRARIES
    return _CUSTOM if is_own and (is_pointwise or _waits_for_memory(facts, side)) else None


def _passes_around(collected: _Collected, side: Side, around: Sequence[PassedBuffer]) -> _Passes:
    """Return what is saved without an op: its buffers, and what it takes beside loading them."""
    facts = collected.facts
    if around:
        beside = [end.launches for each in around for end in (each.writer, each.reader)]
        calls = min((each.calls for each in around), key=len)
    else:
        beside = [own for own in collected.order.beside(side.launches) if len(own)]
        calls = min(beside, key=len) if beside else side.launches[:0]
    passes = max(len(calls), 1)
    moved = float(facts.rooflines.bytes[side.launches].filled(0).sum()) / passes
    # Views of complex numbers pass no buffer on; half of the traffic is loaded, and half stored
    passed = float(sum(saved_bytes(each.passed, 1) for each in around))
    saved = passed if around else moved * (1 + len(beside) / 2)
    removed_ns = max(side.duration_ns / passes - moved / collected.bytes_per_ns, 0.0)
    return _Passes(np.unique(np.concatenate([side.launches, *beside])), calls, saved, removed_ns)


class _Order:
    """The launches in the order in which each stream runs them."""

    def __init__(self, facts: Facts) -> None:
        self._launches = facts.launches
        stream = facts.launches.stream.filled(-1)
        self._rows = np.lexsort((facts.launches.start_ns, stream, facts.launches.device))
        self._at = np.argsort(self._rows)
        self._is_generated = facts.launches.kind.where(LaunchKind.TRITON)

    def beside(self, launches: Ints) -> tuple[Ints, Ints]:
        """Return the generated kernels of the same graph right before and after some launches."""
        graph = self._launches.graph.filled(-1)
        result = []
        for by in (-1, 1):
            at = np.clip(self._at[launches] + by, 0, len(self._rows) - 1)
            rows = self._rows[at]
            result.append(rows[self._is_generated[rows] & (graph[rows] == graph[launches])])
        return result[0], result[1]

    def runs(self, rows: Ints) -> Iterator[tuple[int, Ints, int]]:
        """Yield runs of these launches between two generated kernels of one phase and step."""
        if not self._is_generated.any():
            return
        at = np.sort(self._at[rows])
        phase, step = self._launches.phase.codes, self._launches.step.filled(-1)
        for run in np.split(at, np.flatnonzero(np.diff(at) > 1) + 1) if len(at) else ():
            if run[0] > 0 and run[-1] + 1 < len(self._rows):
                own = self._rows[run]
                ends = self._rows[[run[0] - 1, run[-1] + 1]]
                are_alike = phase[ends[0]] == phase[ends[1]] and step[ends[0]] == step[ends[1]]
                if self._is_generated[ends].all() and are_alike:
                    yield int(ends[0]), own, int(ends[1])


def _add_crossing(collected: _Collected, crossing: CrossingBuffer) -> None:
    graph = collected.facts.analysis.recording.graphs[crossing.graph]
    if _may_compute_again(collected.facts, crossing):
        return
    launches = np.union1d(crossing.writer.launches, crossing.reader.launches)
    broken = _break_before(collected.facts, graph)
    collected.add(
        _ONE_GRAPH,
        (_end(crossing.writer), _end(crossing.reader)),
        _Passes(launches, crossing.calls, _crossing_bytes(crossing)),
        remedy=_NO_BREAK if broken else "",
        reason=broken or "compiled functions that are called apart",
    )


def _is_sharded(facts: Facts) -> bool:
    """Tell whether parameters are gathered as they are needed, between graphs (FSDP)."""
    communication = facts.analysis.communication
    if not len(communication):
        return False
    return any("gather" in name for name in communication.collective.strings)


def _may_compute_again(facts: Facts, crossing: CrossingBuffer) -> bool:
    """Tell whether the backward of one graph would compute what calls apart keep as their inputs.

    The partitioner keeps what products and reductions compute, and computes what is made of them
    again from the first input. Behind a reduction this was slower than to load the later inputs.
    Source: ``min_cut_rematerialization_partition`` of ``torch/_functorch/partitioners.py``
    """
    if not crossing.is_saved or _is_pointwise(crossing.writer):
        return False
    graphs = facts.analysis.recording.graphs
    own = (at for at, graph in enumerate(graphs) if graph.index == crossing.passed.graph)
    of_graphs = {crossing.graph, *own}
    sides = kernel_sides(facts.analysis).items()
    return not any(can_be_template(side.site) for (at, _), side in sides if at in of_graphs)


def _crossing_bytes(crossing: CrossingBuffer) -> float:
    """Return what one graph would not load and store.

    A backward computes again what a pointwise kernel stored for it. What kernels after the next one
    need too, as in residual connections, they load or compute again: half of the load was won.
    """
    if crossing.readers > 1:
        return crossing.passed.bytes / 2
    is_stored = crossing.is_saved and not _is_pointwise(crossing.writer)
    return crossing.passed.bytes * (1 if is_stored else 2)


def _break_before(facts: Facts, graph: GraphInstance) -> str | None:
    """Return the graph break after which a graph begins, if it does."""
    if isinstance(facts.compiles, CannotJudge):
        return None
    for each in facts.compiles:
        if each.is_resumed and each.compile_id == graph.compile_id:
            return f"a graph break at {Path(each.file or '').name}:{each.line}"
    return None


def _add_eager(collected: _Collected) -> None:
    """Add pointwise eager kernels and copies between two kernels of compiled graphs."""
    facts, order = collected.facts, collected.order
    phases = facts.launches.phase.where(Phase.FORWARD, Phase.BACKWARD, Phase.OTHER)
    eager = facts.in_steps(facts.launches.scope.where(Scope.EAGER) & phases)
    is_own = facts.named(
        lambda name: _COPY in name or (_ELEMENTWISE in name and _COMPLEX not in name)
    )
    for before, own, after in order.runs(np.flatnonzero(eager & is_own)):
        removed_ns = float(facts.launches.duration_ns[own].sum())
        if len(own) > _MAX_EAGER or removed_ns < _MIN_EAGER_NS:
            continue
        # What the first of them loads is stored for it, and half of what the last one moves is
        # loaded by the next kernel
        moved = facts.rooflines.bytes[own[[0, -1]]].filled(0) / 2
        longest = int(own[facts.launches.duration_ns[own].argmax()])
        known = facts.main_place[longest] >= 0
        end = (facts.place(longest) if known else None, facts.innermost_op(longest))
        launches = np.array([before, *own, after], np.int64)
        collected.add(
            _EAGER, (end, end), _Passes(launches, own[:1], float(moved.sum()), removed_ns)
        )


def _add_small(collected: _Collected, at: int, graph: GraphInstance) -> None:
    """Add small kernels of a graph that do not depend on each other."""
    if not _is_off(graph, "combo_kernels"):
        return
    facts = collected.facts
    depth: Counter[int] = Counter()
    for each in sorted(graph.record.intermediates, key=lambda each: each.reader):
        depth[each.reader] = max(depth[each.reader], depth[each.writer] + 1)
    levels: dict[int, list[Side]] = defaultdict(list)
    for (of, ordinal), side in kernel_sides(facts.analysis).items():
        is_small = side.duration_ns <= _MAX_SMALL_NS * len(side.launches)
        if of == at and _is_generated(side) and is_small:
            levels[depth[ordinal]].append(side)
    for sides in levels.values():
        if len(sides) >= _MIN_SMALL:
            launches = np.unique(np.concatenate([side.launches for side in sides]))
            saved_ns, sets_pace = _combined_ns(facts, sides), _fills_step(facts, launches)
            passes = _Passes(launches, sides[0].launches, 0.0, saved_ns, sets_pace)
            collected.add(_SMALL, (_end(sides[0]), _end(sides[-1])), passes)


def _combined_ns(facts: Facts, sides: Sequence[Side]) -> float:
    """Return how much less time small kernels take when up to eight of them are one."""
    moved, saved_ns = facts.rooflines.bytes, 0.0
    # Small kernels do not show how fast the memory is
    rate = peak_bytes_per_ns(facts.analysis) or memory_bytes_per_ns(facts.analysis)
    for first in range(0, len(sides), _PER_COMBO):
        own = sides[first : first + _PER_COMBO]
        each_ns = [side.duration_ns / len(side.launches) for side in own]
        bytes_moved = sum(float(moved[side.launches].filled(0).mean()) for side in own)
        then_ns = max(_COMBO_NS, *each_ns, bytes_moved / rate if rate else 0.0)
        saved_ns += max(sum(each_ns) - then_ns, 0.0)
    return saved_ns


def _fills_step(facts: Facts, launches: Ints) -> bool:
    """Tell whether CUDA graphs run these, in steps that are hardly ever idle."""
    is_full = facts.training.is_known and facts.busy_ns >= _FULL * facts.training.step_ns
    return bool(is_full and facts.pace.replayed[launches].all())


RULE = Rule(
    name="missed_fusion",
    title="Kernels that could be one",
    means="Two kernels of a step pass a buffer through memory, or small ones run one after the "
    "other, and there is a known change after which Inductor makes one of them: two compiled "
    "functions or a graph break with nothing in between, an eager op between two graphs, a custom "
    "op or a Triton kernel of the user's, complex numbers, `fallback_random`, a concatenation of "
    "many parts, a value of many inputs, `as_strided` and pooling, an option that is off, an "
    "input that is converted for a product.",
    because="A fused kernel keeps what it computes in registers. Inductor fuses within one graph, "
    "what it generates code for, and within limits that have options.",
    remedy="The finding names it. Residual connections, the sums of a norm's backward, and "
    "products that are bound by arithmetic also pass buffers on (`report --by fusion`); nothing "
    "is said of them, because none of the options gained there.",
    saving="The bytes that are loaded and stored only to be passed on, at the highest rate that a "
    "generated kernel of the session reaches, at most the memory's; of an op that is not "
    "generated also what it takes beyond its traffic. Of small kernels: eight of them take as "
    "long as the longest, or as their traffic, and 3 us at least. All of it at most the time of "
    "these kernels, and only as far as the step waits for the device. Whether an eager op between "
    "two graphs works on what the first one returned is not known.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
