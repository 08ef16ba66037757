"""The buffers that pass between the kernels of a compiled graph, and the time of their traffic.

A fused kernel keeps such a buffer in registers. What that would save is its bytes at the highest
rate that a generated kernel of this recording reaches, at most the time of both kernels.

Why the two were not fused is in the words of Inductor's scheduler, sorted into few kinds. Words
that are not known here stay as they are. Source: the calls of ``WhyNoFuse`` in
``torch/_inductor/scheduler.py``, ``choices.py`` and ``codegen/simd.py``, torch 2.11 to 2.13.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from profiler_ext.records.analysis import Analysis, Place
from profiler_ext.records.events import Ints
from profiler_ext.records.provenance import (
    Autotuned,
    CallSite,
    Choice,
    GraphInstance,
    Intermediate,
    PassedInput,
    Provenance,
)
from profiler_ext.records.share_sums import largest_places
from profiler_ext.records.vocabulary import ChoiceKind, FusionBarrier, LaunchKind, SiteKind
from profiler_ext.rooflines.rooflines import rooflines

_TEMPLATED_OPS = ("mm", "addmm", "bmm", "baddbmm", "convolution", "_scaled_mm", "_grouped_mm")
"""Ops for which ``torch/_inductor/kernel`` has Triton templates."""
_BY_WORDS: Mapping[str, FusionBarrier] = MappingProxyType(
    {
        "memory deps did not match": FusionBarrier.ACCESS_ORDER,
        "no shared data": FusionBarrier.ACCESS_ORDER,
        "score_fusion_memory_threshold": FusionBarrier.ACCESS_ORDER,
        "tiling mismatch": FusionBarrier.ACCESS_ORDER,
        "invalid tiling for reduction": FusionBarrier.ACCESS_ORDER,
        "invalid loop order and tiling": FusionBarrier.ACCESS_ORDER,
        "numel/rnumel mismatch": FusionBarrier.LOOP_SIZES,
        "nodes numel": FusionBarrier.LOOP_SIZES,
        "intermediate nodes between": FusionBarrier.DEPENDENCY,
        "will create cycle": FusionBarrier.DEPENDENCY,
        "node1 must go before node2": FusionBarrier.DEPENDENCY,
        "exceeds max fusion": FusionBarrier.LIMIT,
        "Fusion will increase peak memory": FusionBarrier.LIMIT,
        "fusion_prevent_too_many_reads_and_writes": FusionBarrier.LIMIT,
        "Nodes are too far away": FusionBarrier.LIMIT,
        "register spilling": FusionBarrier.LIMIT,
        "prologue fusion": FusionBarrier.TEMPLATE,
        "template": FusionBarrier.TEMPLATE,
        "multi-output template": FusionBarrier.TEMPLATE,
        "node1's triton kernel": FusionBarrier.TEMPLATE,
        "epilogue reads": FusionBarrier.TEMPLATE,
        "node1 and node2 uses different buf layouts": FusionBarrier.TEMPLATE,
        "node1 is extern": FusionBarrier.LIBRARY_CALL,
        "node2 is extern": FusionBarrier.LIBRARY_CALL,
        "node1 is nop": FusionBarrier.KIND,
        "grouped node": FusionBarrier.KIND,
        "foreach": FusionBarrier.KIND,
        "candidate": FusionBarrier.KIND,
        "Split scan": FusionBarrier.KIND,
        "fusion for buffer explicit disabled": FusionBarrier.KIND,
        "device mismatch": FusionBarrier.KIND,
    }
)


def barrier_between(refusal: str | None, writer: CallSite, reader: CallSite) -> FusionBarrier:
    """Return the kind of a reason for which two kernels were not fused."""
    if SiteKind.EXTERN in (writer.kind, reader.kind):
        return FusionBarrier.LIBRARY_CALL
    if refusal is None:
        return FusionBarrier.NOT_GIVEN
    kinds = (kind for words, kind in _BY_WORDS.items() if refusal.startswith(words))
    return next(kinds, FusionBarrier.OTHER)


def can_be_template(site: CallSite) -> bool:
    """Tell whether Inductor has a Triton template for what a library call computes."""
    op = (site.op or "").removeprefix("aten::")
    return site.kind is SiteKind.EXTERN and op in _TEMPLATED_OPS


def library_call_text(record: Provenance, writer: CallSite, reader: CallSite) -> str:
    """Return why a library call cannot be fused, and whether a template could or was tried."""
    calls = [site for site in (writer, reader) if site.kind is SiteKind.EXTERN]
    fixed = [site for site in calls if not can_be_template(site) and not record.autotuned_at(site)]
    names = " and ".join(dict.fromkeys(site.op or site.kernel for site in fixed or calls))
    if fixed:
        return f"{names}, for which Inductor has no template"
    if tuned := tuple(_autotuned(record, calls)):
        return "; ".join(dict.fromkeys(autotuned_text(site, found) for site, found in tuned))
    if record.is_max_autotune:
        return f"{names}, of which no choice of max_autotune is recorded"
    return f"{names}, which a Triton template could compute (max_autotune is off)"


def _autotuned(
    record: Provenance, sites: Iterable[CallSite]
) -> Iterator[tuple[CallSite, Autotuned]]:
    for site in sites:
        if (tuned := record.autotuned_at(site)) is not None:
            yield site, tuned


def autotuned_text(site: CallSite, tuned: Autotuned) -> str:
    """Return what autotuning timed for a library call, and that it chose it."""
    name = site.op or site.kernel
    own = tuned.choices[tuned.chosen] if tuned.chosen is not None else None
    others = [each for each in tuned.choices if each.kind is not ChoiceKind.LIBRARY]
    timed = [each.duration_ns for each in others if each.duration_ns is not None]
    chose = "max_autotune chose the library"
    if tuned.is_cached:
        chose += ", by times from torch's cache"
    if own is None or own.duration_ns is None:
        return f"{name}: {chose}; its time is not known"
    took = f"{name} took {_time(own.duration_ns)} alone when it was compiled"
    if not timed:
        return f"{took}, and {'no template ran' if others else 'no template was tried'}: {chose}"
    best = f"{_which(others, tuned.others)} {_time(min(timed))}"
    if own.duration_ns <= min(timed):
        return f"{took}, {best}: {chose}"
    return f"{took}, {best}; {chose} nevertheless"


def _time(duration_ns: int) -> str:
    is_long = duration_ns >= _LONG_NS
    return f"{duration_ns / 1e6:,.1f} ms" if is_long else f"{duration_ns / 1e3:,.1f} us"


def _which(others: Sequence[Choice], left_out: int) -> str:
    """Name the best of the choices that are no library call."""
    count = len(others) + left_out
    if count == 1:
        return f"the only {others[0].kind.label}"
    are_templates = all(each.kind is ChoiceKind.TEMPLATE for each in others)
    return f"the best of {count:,} templates{'' if are_templates else ' and decompositions'}"


_LONG_NS = 10_000_000
_LEAST_BYTES = 1 << 20
"""Kernels that move less take their fixed time, whatever the rate."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of two kernels that pass a buffer on, in the recorded steps."""

    site: CallSite
    place: Place | None  # of the largest part of its time
    launches: Ints  # rows in ``Launches``
    duration_ns: int


@dataclass(frozen=True, slots=True)
class PassedBuffer:
    """A buffer between two kernels of a graph that ran in the recorded steps."""

    graph: int  # index into ``Recording.graphs``
    passed: Intermediate
    writer: Side
    reader: Side
    barrier: FusionBarrier
    reason: str  # in torch's words where it gave some
    calls: Ints  # a launch for each time that it was passed on
    could_save_ns: int | None  # in all recorded steps; ``None`` where no rate is known
    autotuned: tuple[tuple[CallSite, Autotuned], ...] = ()  # of each side that autotuning chose


def passed_buffers(analysis: Analysis) -> tuple[PassedBuffer, ...]:
    """Return the buffers between kernels, computed once; most time first, then most bytes."""
    return analysis.derived.once("passed_buffers", lambda: _sorted(analysis))


def _sorted(analysis: Analysis) -> tuple[PassedBuffer, ...]:
    every = _passed(analysis, kernel_sides(analysis), _bytes_per_ns(analysis))
    return tuple(sorted(every, key=lambda p: (-(p.could_save_ns or 0), -p.passed.read_bytes)))


def _passed(
    analysis: Analysis, sides: Mapping[tuple[int, int], Side], bytes_per_ns: float | None
) -> Iterator[PassedBuffer]:
    for index, graph in enumerate(analysis.recording.graphs):
        pairs = {(each.buffer, each.reader) for each in graph.record.intermediates}
        readers = Counter(buffer for buffer, _ in pairs)
        for passed in graph.record.intermediates:
            writer = sides.get((index, passed.writer))
            reader = sides.get((index, passed.reader))
            if writer is None or reader is None:
                continue
            calls = _calls(writer, reader)
            took_ns = writer.duration_ns + reader.duration_ns
            moved = saved_bytes(passed, readers[passed.buffer]) * len(calls)
            yield PassedBuffer(
                index,
                passed,
                writer,
                reader,
                barrier := barrier_between(passed.refusal, writer.site, reader.site),
                _reason(graph, passed, barrier, writer.site, reader.site),
                calls,
                None if bytes_per_ns is None else min(round(moved / bytes_per_ns), took_ns),
                tuple(_autotuned(graph.record, (writer.site, reader.site))),
            )


def saved_bytes(passed: Intermediate, readers: int) -> int:
    """Return the bytes that a fusion saves: the load, and the store where nobody else needs it."""
    is_stored_anyway = passed.is_kept or readers > 1
    return passed.read_bytes + (0 if is_stored_anyway else passed.written_bytes)


def _reason(
    graph: GraphInstance,
    passed: Intermediate,
    barrier: FusionBarrier,
    writer: CallSite,
    reader: CallSite,
) -> str:
    if barrier is FusionBarrier.LIBRARY_CALL:
        return library_call_text(graph.record, writer, reader)
    return passed.refusal or barrier.label


def _calls(writer: Side, reader: Side) -> Ints:
    """One launch for each call of the graph: a library call may launch several kernels."""
    return min(reader.launches, writer.launches, key=len)


@dataclass(frozen=True, slots=True)
class CrossingBuffer:
    """A buffer that a kernel of one call of a graph stores, and one of a later call loads."""

    graph: int  # index into ``Recording.graphs``, of the kernel that loads it
    passed: PassedInput
    writer: Side
    reader: Side
    calls: Ints  # a launch for each time that it was passed on
    readers: int  # kernels that load it, in graphs of its direction
    is_saved: bool  # a backward loads it too


def crossing_buffers(analysis: Analysis) -> Iterator[CrossingBuffer]:
    """Yield the buffers between two graphs, or two calls of one, whose kernels could be fused.

    Both are generated, and the one that loads it waits for no other kernel of its graph. Parts of
    one compile, as DDP makes them for its buckets, are apart on purpose.
    """
    graphs, sides = analysis.recording.graphs, kernel_sides(analysis)
    at = {graph.index: position for position, graph in enumerate(graphs)}
    readers = [Counter(_uses(graphs, is_backward)) for is_backward in (False, True)]
    for reading, graph in enumerate(graphs):
        for passed in graph.passed_inputs:
            writing = at.get(passed.graph)
            if writing is None or not _are_alike(graphs[writing], graph):
                continue
            writer = _generated(_of_graph(sides, writing), "writes", passed.output)
            reader = _generated(_of_graph(sides, reading), "reads", passed.name)
            if writer is None or reader is None or _waits_within(graph, reader.site):
                continue
            calls = _after_first(analysis, reader) if reading == writing else _calls(writer, reader)
            output = passed.graph, passed.output
            own, other = (readers[graph.is_backward ^ by][output] for by in (False, True))
            yield CrossingBuffer(reading, passed, writer, reader, calls, own, other > 0)


def _uses(graphs: Iterable[GraphInstance], is_backward: bool) -> Iterator[tuple[int, str]]:
    """The outputs of graphs that kernels of one direction load, as often as they do."""
    for graph in graphs:
        origins: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for passed in graph.passed_inputs:
            origins[passed.name].append((passed.graph, passed.output))
        for site in graph.call_sites if graph.is_backward == is_backward else ():
            for name in site.reads:
                yield from origins.get(name, [(graph.index, name)])


def _are_alike(writing: GraphInstance, reading: GraphInstance) -> bool:
    is_part = writing is not reading and writing.compile_id == reading.compile_id
    return writing.is_backward == reading.is_backward and not is_part


def _of_graph(sides: Mapping[tuple[int, int], Side], graph: int) -> Iterator[Side]:
    return (side for (of, _), side in sides.items() if of == graph)


def _generated(sides: Iterable[Side], touches: str, buffer: str) -> Side | None:
    """The first of these kernels that reads or writes a buffer, if it is generated."""
    own = (side for side in sides if buffer in getattr(side.site, touches))
    first = min(own, key=lambda side: side.site.ordinal, default=None)
    return first if first is not None and first.site.kind is SiteKind.TRITON else None


def _waits_within(graph: GraphInstance, reader: CallSite) -> bool:
    """Tell whether a kernel loads what another one of its graph stores."""
    stored = {name for site in graph.call_sites for name in site.writes if site is not reader}
    return not stored.isdisjoint(reader.reads)


def _after_first(analysis: Analysis, side: Side) -> Ints:
    """The launches of a kernel but the first of each step."""
    steps = analysis.launches.step[side.launches].filled(-1)
    return np.delete(side.launches, np.unique(steps, return_index=True)[1])


def kernel_sides(analysis: Analysis) -> Mapping[tuple[int, int], Side]:
    """Return the call sites that launched something in the steps, by graph and ordinal."""
    return analysis.derived.once("kernel_sides", lambda: _sides(analysis))


def _sides(analysis: Analysis) -> dict[tuple[int, int], Side]:
    launches = analysis.launches
    known = ~(np.ma.getmaskarray(launches.graph) | np.ma.getmaskarray(launches.call_site))
    rows = np.flatnonzero(known & launches.in_steps)
    pairs = np.column_stack((launches.graph.data[rows], launches.call_site.data[rows]))
    distinct, of_row = np.unique(pairs, axis=0, return_inverse=True)
    order = np.argsort(of_row.ravel(), kind="stable")
    groups = np.split(rows[order], np.cumsum(np.bincount(of_row.ravel()))[:-1]) if len(rows) else []
    places = largest_places(analysis)
    sides: dict[tuple[int, int], Side] = {}
    for (graph, ordinal), own in zip(distinct.tolist(), groups, strict=True):
        sites = analysis.recording.graphs[graph].call_sites
        site = next((each for each in sites if each.ordinal == ordinal), None)
        if site is not None:
            place = int(places[own[0]])
            of_place = analysis.places[place] if place >= 0 else None
            sides[graph, ordinal] = Side(site, of_place, own, int(launches.duration_ns[own].sum()))
    return sides


def memory_bytes_per_ns(analysis: Analysis) -> float | None:
    """Return that rate, at most the peak of the device's memory: caches may be faster."""
    rate, peak = _bytes_per_ns(analysis), peak_bytes_per_ns(analysis)
    return rate if rate is None or peak is None else min(rate, peak)


def peak_bytes_per_ns(analysis: Analysis) -> float | None:
    """Return the peak of the device's memory, if it is known."""
    known = rooflines(analysis)
    peaks = (known.gb_per_s / known.bandwidth_fraction).compressed()
    return float(peaks.max()) if len(peaks) else None


def _bytes_per_ns(analysis: Analysis) -> float | None:
    """The highest rate that a generated kernel of some size reaches."""
    launches, moved = analysis.launches, rooflines(analysis).bytes
    generated = launches.kind.where(LaunchKind.TRITON, LaunchKind.CPP)
    rows = np.flatnonzero(
        generated & (moved.filled(0) >= _LEAST_BYTES) & (launches.duration_ns > 0)
    )
    if not len(rows):
        return None
    return float((moved.data[rows] / launches.duration_ns[rows]).max())
