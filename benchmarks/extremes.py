"""Recordings at their extremes, made of columns: a million events in a second, and no file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.recordings import LAYERS
from profiler_ext.kineto.recording import read_recording
from profiler_ext.records.events import Events, Interned, Ints
from profiler_ext.records.provenance import CallSite, GraphInstance, Provenance
from profiler_ext.records.recording import PythonLines, Recording, ThreadPositions, thread_positions
from profiler_ext.records.vocabulary import SiteKind

_CASES = LAYERS.parent
_MLP = _CASES.parent / "mlp.session.pt.trace.json.gz"
_STEP = re.compile(r"ProfilerStep#(\d+)")
_CLOCK = re.compile(r"profiler_ext: clock \d+")
_MOVED = ("correlation", "external_id", "sequence_number")
_PAUSE_NS = 1_000_000
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


@cache
def _read(path: Path) -> Recording:
    return read_recording(path)


def many_steps(count: int) -> Recording:
    """Return so many steps, of one launch each."""
    once = _read(_MLP)
    return tiled(_taken(once, _first_launches(once.trace.events)), max(count // 2, 1))


def one_step(launches: int) -> Recording:
    """Return so many launches of compiled graphs in one step."""
    once = _read(LAYERS)
    named = np.array([_STEP.fullmatch(text) is None for text in once.trace.events.name.strings])
    return tiled(_taken(once, named[once.trace.events.name.codes]), _copies(launches, 1_160))


def eager_step(launches: int) -> Recording:
    """Return so many launches outside of compiled graphs in one step, no line watched."""
    return replace(
        tiled(_read(_CASES / "eager.session.pt.trace.json.gz"), _copies(launches, 1_022)),
        python=None,
    )


def many_graphs(count: int) -> Recording:
    """Return so many graphs, each called once."""
    once, copies = _read(_MLP), max(count // 2, 1)
    long, graphs = tiled(once, copies), list[GraphInstance]()
    keys = [graph.key or "" for graph in once.graphs]
    for copy in range(copies):
        graphs += [_of_copy(graph, copy, len(keys)) for graph in once.graphs]
    events = long.trace.events
    strings, codes = _with_keys(events.name, keys, copies)
    named = replace(events, name=Interned(codes, strings))
    return replace(long, graphs=tuple(graphs), trace=replace(long.trace, events=named))


def many_streams(launches: int) -> Recording:
    """Return so many launches on 64 streams."""
    long = tiled(_read(LAYERS), _copies(launches, 1_160))
    stream = long.trace.events.stream.copy()
    rows = np.flatnonzero(long.trace.events.category.where(*_DEVICE))
    stream[rows] = np.arange(len(rows)) % 64
    return _with_events(long, stream=stream)


def many_nodes(count: int) -> Recording:
    """Return two calls of one graph of so many nodes, each with a kernel of its own."""
    names = [f"triton_poi_fused_mul_{at}" for at in range(count)]
    sites = tuple(
        CallSite(at, str(at), SiteKind.TRITON, names[at], None, (), ()) for at in range(count)
    )
    once = _read(_MLP)
    graph = once.graphs[0]
    record: Provenance = replace(graph.record, call_sites=sites, digest="many")
    return _called(replace(once, graphs=(replace(graph, provenance=record),)), names, 2)


def damaged_calls(launches: int) -> Recording:
    """Return so many launches of compiled graphs, of which every fiftieth was lost."""
    return _damaged(tiled(_read(LAYERS), _copies(launches, 1_160)))


def damaged_replays(launches: int) -> Recording:
    """Return so many launches that CUDA graphs replay, of which every fiftieth was lost."""
    once = _read(_CASES / "cudagraphs_seen_late.session.pt.trace.json.gz")
    return _damaged(tiled(once, _copies(launches, 306)))


def many_lines(changes: int) -> Recording:
    """Return so many changes of watched lines, with every tenth launch of what they ran."""
    once = _read(_CASES / "eager.session.pt.trace.json.gz")
    events = once.trace.events
    own = events.external_id.filled(0) % 10 == 0
    kept = own | events.category.where("user_annotation") | (events.name.codes < 0)
    return tiled(_taken(once, kept), _copies(changes, 748))


EXTREMES: Mapping[str, tuple[Callable[[int], Recording], int]] = {
    "steps": (many_steps, 100_000),
    "launches of graphs in one step": (one_step, 1_000_000),
    "eager launches in one step": (eager_step, 300_000),
    "graphs": (many_graphs, 10_000),
    "launches on 64 streams": (many_streams, 300_000),
    "nodes of one graph": (many_nodes, 50_000),
    "launches, one in 50 lost": (damaged_calls, 300_000),
    "replayed launches, one in 50 lost": (damaged_replays, 300_000),
    "changes of watched lines": (many_lines, 1_000_000),
}
"""Each with what makes so many, and how many are many."""


def tiled(once: Recording, copies: int) -> Recording:
    """Repeat a recording, with steps of its own each time.

    Args:
        once: the recording.
        copies: how often.
    """
    events = once.trace.events
    start, end = int(events.start_ns.min()), int(events.end_ns.max())
    period = end - start + _PAUSE_NS
    copy = np.repeat(np.arange(copies), len(events))
    columns: dict[str, Any] = {
        field.name: _repeated(getattr(events, field.name), copies) for field in fields(events)
    }
    columns["start_ns"] = columns["start_ns"] + copy * period
    for name in _MOVED:
        most = int(getattr(events, name).max() or 0) + 1
        columns[name] = columns[name] + np.where(columns[name].filled(0) > 0, copy * most, 0)
    columns["name"] = _with_steps(events.name, copies)
    python = None if once.python is None else _lines(once.python, copies, period)
    trace = replace(once.trace, events=Events(**columns))
    long = replace(once, trace=trace, python=python)
    clocks = np.array([_CLOCK.fullmatch(text) is not None for text in columns["name"].strings])
    return _taken(long, ~(clocks[columns["name"].codes] & (copy > 0)))


def _copies(wanted: int, of_one: int) -> int:
    return max(-(-wanted // of_one), 1)


def _repeated(column: Any, copies: int) -> Any:
    if isinstance(column, Interned):
        return Interned(np.tile(column.codes, copies), column.strings)
    if isinstance(column, np.ma.MaskedArray):
        mask = np.tile(np.ma.getmaskarray(column), copies)
        return np.ma.MaskedArray(np.tile(column.data, copies), mask)
    return np.tile(column, copies) if isinstance(column, np.ndarray) else column


def _with_steps(name: Interned, copies: int) -> Interned:
    """Give the steps of each copy names of their own."""
    numbers = {
        at: int(m[1]) for at, text in enumerate(name.strings) if (m := _STEP.fullmatch(text))
    }
    span = max(numbers.values(), default=0) - min(numbers.values(), default=0) + 1
    strings, codes = list(name.strings), np.tile(name.codes, copies)
    for at, number in numbers.items():
        rows = np.flatnonzero(codes == at)
        of_copy = rows // len(name.codes)
        codes[rows] = np.where(of_copy, len(strings) + of_copy - 1, at)
        strings += [f"ProfilerStep#{number + copy * span}" for copy in range(1, copies)]
    return Interned(codes, tuple(strings))


def _lines(lines: PythonLines, copies: int, period: int) -> PythonLines:
    def thread(each: ThreadPositions) -> ThreadPositions:
        times = each.times_ns[None, :] + (np.arange(copies) * period)[:, None]
        positions = np.tile(each.indices, copies)
        return thread_positions(each.thread, times.reshape(-1).tolist(), positions.tolist())

    end_ns = lines.end_ns + (copies - 1) * period
    return replace(lines, threads=tuple(map(thread, lines.threads)), end_ns=end_ns)


def _of_copy(graph: GraphInstance, copy: int, graphs: int) -> GraphInstance:
    record = graph.record
    digest = f"{record.digest}{copy}"
    return replace(
        graph,
        index=graph.index + copy * graphs,
        key=f"{graph.key}{copy}",
        provenance=replace(record, digest=digest, joint=f"{record.joint}{copy}"),
    )


def _with_keys(name: Interned, keys: list[str], copies: int) -> tuple[tuple[str, ...], Any]:
    strings, codes = list(name.strings), name.codes.copy()
    for at in [at for at, text in enumerate(name.strings) if any(key in text for key in keys)]:
        rows, text = np.flatnonzero(codes == at), name.strings[at]
        key = next(key for key in keys if key in text)
        codes[rows] = len(strings) + rows // (len(codes) // copies)
        strings += [text.replace(key, f"{key}{copy}") for copy in range(copies)]
    return tuple(strings), codes


def _first_launches(events: Events) -> Any:
    """Flag each step and what enqueued and ran its first kernel."""
    kernels = np.flatnonzero(events.category.where("kernel"))
    calls = np.flatnonzero(events.category.where("cuda_runtime", "cuda_driver"))
    kept = np.zeros(len(events), np.bool_)
    for at, text in enumerate(events.name.strings):
        if _STEP.fullmatch(text):
            [step] = np.flatnonzero(events.name.codes == at)[:1]
            begun = calls[events.start_ns[calls] > events.start_ns[step]]
            launched = kernels[np.isin(events.correlation[kernels], events.correlation[begun])]
            kernel = launched[events.start_ns[launched].argmin()]
            kept[step] = True
            kept |= (events.external_id == events.external_id[kernel]).filled(False)
    return kept


def _taken(recording: Recording, kept: Any) -> Recording:
    events = recording.trace.events
    columns = {field.name: getattr(events, field.name) for field in fields(events)}
    some = {name: _rows(column, kept) for name, column in columns.items()}
    return _with_events(recording, **some)


def _rows(column: Any, kept: Any) -> Any:
    if isinstance(column, Interned):
        return Interned(column.codes[kept], column.strings)
    return column[kept] if isinstance(column, np.ndarray) else column


def _with_events(recording: Recording, **columns: Any) -> Recording:
    events = replace(recording.trace.events, **columns)
    return replace(recording, trace=replace(recording.trace, events=events))


def _damaged(recording: Recording) -> Recording:
    device = recording.trace.events.category.where(*_DEVICE)
    kept = np.random.default_rng(0).random(len(device)) >= 1 / 50
    return _taken(recording, ~device | kept)


def _called(recording: Recording, names: list[str], calls: int) -> Recording:
    """Return calls of the first graph, each of which launches every kernel once."""
    once, count = recording.trace.events, len(names)
    marker = next(
        at for at, text in enumerate(once.name.strings) if str(recording.graphs[0].key) in text
    )
    rows = [int(np.flatnonzero(once.name.codes == marker)[0])]
    rows += [
        int(np.flatnonzero(once.category.where(each))[0]) for each in ("cuda_runtime", "kernel")
    ]
    order = np.concatenate([[0], np.tile([1, 2], count)])
    inner = np.append(0, np.repeat(np.arange(count), 2))
    one = _taken(recording, np.array(rows)[order])
    start = np.where(order == 0, 0, 1_000 + inner * 10_000 + (order == 2) * 5_000)
    long = {0: count * 10_000 + 2_000, 1: 2_000, 2: 4_000}
    kernel = Interned(_codes(order, inner), (once.name.strings[marker], "cudaLaunchKernel", *names))
    ids = np.ma.MaskedArray(inner + 1, order == 0)
    duration = np.array([long[each] for each in order.tolist()])
    one = _with_events(one, start_ns=start, duration_ns=duration, name=kernel, correlation=ids)
    return tiled(_with_events(one, external_id=np.ma.masked_all(len(order), np.int64)), calls)


def _codes(order: Ints, inner: Ints) -> Any:
    return np.where(order == 2, inner + 2, order).astype(np.int32)
