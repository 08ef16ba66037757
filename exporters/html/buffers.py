"""The buffers between kernels on the page: a map of each graph, and the largest of them.

In a map the kernels of a graph stand side by side in the order of their launches, as wide as their
time; an arc above joins the two that a buffer passes between, as thick as its bytes. Of several
ranks each that can be chosen has its own maps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from math import sqrt

from profiler_ext.exporters.html.elements import Head, TableRow, details, section, table, tag, text
from profiler_ext.exporters.html.links import link
from profiler_ext.exporters.html.slices import rank_number, selectable_ranks
from profiler_ext.exporters.views.between import barrier_name
from profiler_ext.exporters.views.findings import kernel_name
from profiler_ext.exporters.views.formatting import short_path, time_text
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.provenance import Choice
from profiler_ext.records.recording import Settings
from profiler_ext.records.step_kinds import of_usual_kind
from profiler_ext.records.vocabulary import FusionBarrier
from profiler_ext.rooflines.intermediates import PassedBuffer, Side, passed_buffers

_WIDTH, _HEIGHT, _KERNELS_HEIGHT = 1000, 150, 14
_LEAST_KERNEL, _MOST_STROKE, _LEAST_STROKE = 1.5, 7.0, 0.6
_SHOWN, _OPEN_GRAPHS, _MAX_GRAPHS, _MAX_ARCS = 15, 2, 8, 400
_HEADS = (
    *(Head(title, "number") for title in ("max saving", "MB")),
    *(Head(title, "wrap") for title in ("stored", "loaded", "not fused because of")),
)


def buffers(analyses: Sequence[Analysis]) -> str:
    """Return the section, nothing where no buffer is known; of several ranks one is open."""
    ranks = selectable_ranks(analyses)
    usual = [of_usual_kind(each) for each in analyses if rank_number(each) in ranks]
    shown = [(each, passed) for each in usual if (passed := passed_buffers(each))]
    if not shown:
        return ""
    explanation = tag("p", text(_explanation())) + _legend([p for _, own in shown for p in own])
    graphs = max(_MAX_GRAPHS // len(shown), _OPEN_GRAPHS)
    parts = [_of_rank(analysis, passed, graphs) for analysis, passed in shown]
    if len(analyses) == 1:
        return section("buffers", "Buffers between kernels", explanation + parts[0])
    bodies = (
        details(
            text(_rank_title(analysis, passed)),
            part,
            analysis is shown[0][0],
            class_="rank",
            data_rank=str(rank_number(analysis)),
        )
        for (analysis, passed), part in zip(shown, parts, strict=True)
    )
    return section("buffers", "Buffers between kernels", explanation + "".join(bodies))


def _of_rank(analysis: Analysis, passed: Sequence[PassedBuffer], graphs: int) -> str:
    """Return the maps of a rank's largest graphs, and its largest buffers."""
    rows = (_row(each, analysis) for each in passed[:_SHOWN])
    body = "".join(_maps(analysis, passed, graphs)) + table(_HEADS, rows)
    if len(passed) > _SHOWN:
        more = f"{len(passed) - _SHOWN:,} more: profiler-ext report --by fusion"
        body += tag("p", text(more), class_="quiet")
    return body


def _rank_title(analysis: Analysis, passed: Sequence[PassedBuffer]) -> str:
    return (
        f"rank {rank_number(analysis)}: {len(passed):,} buffers, "
        f"{_loaded_mb(passed, analysis):,.1f} MB loaded a step"
    )


def _loaded_mb(passed: Iterable[PassedBuffer], analysis: Analysis) -> float:
    loaded = sum(each.passed.read_bytes * len(each.calls) for each in passed)
    return loaded / max(len(analysis.steps), 1) / 1e6


def _explanation() -> str:
    return (
        "Each box is a kernel of a compiled graph, in the order of its launches and as wide as its "
        "time. An arc is a buffer that one stores to memory and another loads; had they been one "
        "kernel, it would have stayed in registers."
    )


def _legend(passed: Sequence[PassedBuffer]) -> str:
    present = {each.barrier for each in passed}
    keys = (
        tag("span", tag("i", "", class_=f"key {_color(barrier)}"), text(barrier.label))
        for barrier in FusionBarrier
        if barrier in present
    )
    return tag("p", "not fused because of: ", *keys, class_="legend")


def _color(barrier: FusionBarrier) -> str:
    return f"barrier-{tuple(FusionBarrier).index(barrier)}"


def _maps(analysis: Analysis, passed: Sequence[PassedBuffer], most: int) -> Iterable[str]:
    """Yield a map for each of the graphs whose buffers take most time."""
    ordered = sorted(passed, key=lambda each: each.graph)
    by_graph = {graph: list(own) for graph, own in groupby(ordered, lambda each: each.graph)}
    costs = {graph: sum(p.could_save_ns or 0 for p in own) for graph, own in by_graph.items()}
    largest = sorted(by_graph, key=lambda graph: -costs[graph])[:most]
    for at, graph in enumerate(largest):
        of_graph = analysis.recording.graphs[graph]
        phase = "backward" if of_graph.runs_backward else "forward"
        title = (
            f"graph {of_graph.compile_id or graph} {phase}: {len(by_graph[graph]):,} buffers, "
            f"{_loaded_mb(by_graph[graph], analysis):,.1f} MB loaded a step"
        )
        yield details(text(title), _map(by_graph[graph], title), at < _OPEN_GRAPHS)


def _map(passed: Sequence[PassedBuffer], title: str) -> str:
    sides = {side.site.ordinal: side for each in passed for side in (each.writer, each.reader)}
    spans = _spans([sides[ordinal] for ordinal in sorted(sides)])
    largest = sorted(passed, key=lambda each: -each.passed.read_bytes)[:_MAX_ARCS]
    most = max(each.passed.read_bytes for each in largest) or 1
    boxes = (_box(sides[ordinal], *spans[ordinal]) for ordinal in spans)
    arcs = (_arc(each, spans, most) for each in reversed(largest))
    return tag(
        "svg",
        *boxes,
        *arcs,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        class_="buffers",
        role="img",
        aria_label=title,
    )


def _spans(sides: Sequence[Side]) -> dict[int, tuple[float, float]]:
    """Where each kernel begins, and its width: by time, and none too narrow to be seen."""
    whole = sum(side.duration_ns for side in sides) or 1
    least = min(_LEAST_KERNEL, _WIDTH / len(sides))
    wide = [max(_WIDTH * side.duration_ns / whole, least) for side in sides]
    scale, begin, spans = _WIDTH / sum(wide), 0.0, {}
    for side, width in zip(sides, wide, strict=True):
        spans[side.site.ordinal] = (begin, width * scale)
        begin += width * scale
    return spans


def _box(side: Side, begin: float, width: float) -> str:
    name = f"{kernel_name(side.site.kernel)}: {time_text(side.duration_ns / len(side.launches))}"
    return tag(
        "rect",
        tag("title", text(name)),
        x=f"{begin:.1f}",
        y=str(_HEIGHT - _KERNELS_HEIGHT),
        width=f"{width:.1f}",
        height=str(_KERNELS_HEIGHT),
        class_=f"kind-{side.site.kind}",
    )


def _arc(each: PassedBuffer, spans: dict[int, tuple[float, float]], most: int) -> str:
    starts = (spans[side.site.ordinal] for side in (each.writer, each.reader))
    left, right = sorted(begin + width / 2 for begin, width in starts)
    top, base = _HEIGHT - _KERNELS_HEIGHT, _HEIGHT - _KERNELS_HEIGHT
    height = min(top - 4.0, 8 + (right - left) / 2)
    stroke = max(_MOST_STROKE * sqrt(each.passed.read_bytes / most), _LEAST_STROKE)
    name = (
        f"{each.passed.buffer}, {each.passed.read_bytes / 1e6:,.2f} MB: "
        f"{kernel_name(each.writer.site.kernel)} to {kernel_name(each.reader.site.kernel)}. "
        f"{barrier_name(each.barrier, each.reason)}"
    )
    peak = base - 4 * height / 3  # of the control points: the curve reaches three quarters of it
    return tag(
        "path",
        tag("title", text(name)),
        d=f"M{left:.1f} {base}C{left:.1f} {peak:.1f} {right:.1f} {peak:.1f} {right:.1f} {base}",
        stroke_width=f"{stroke:.2f}",
        class_=f"arc {_color(each.barrier)}",
    )


def _row(each: PassedBuffer, analysis: Analysis) -> TableRow:
    settings, steps = analysis.recording.settings, max(len(analysis.steps), 1)
    saving = time_text(each.could_save_ns / steps) if each.could_save_ns else ""
    return TableRow(
        (
            saving,
            f"{each.passed.read_bytes / 1e6:,.2f}",
            _side(each.writer, settings),
            _side(each.reader, settings),
            text(barrier_name(each.barrier, each.reason)) + "".join(_choices(each)),
        )
    )


def _choices(each: PassedBuffer) -> Iterable[str]:
    """Yield what max_autotune timed for the kernels on both sides, and which it chose."""
    for site, tuned in each.autotuned:
        items = (
            tag("li", tag("b", line) if at == tuned.chosen else line)
            for at, choice in enumerate(tuned.choices)
            for line in [text(_choice(choice))]
        )
        more = tag("li", text(f"{tuned.others:,} slower ones")) if tuned.others else ""
        title = text(f"choices of max_autotune for {kernel_name(site.kernel)}")
        yield details(title, tag("ol", *items, more))


def _choice(choice: Choice) -> str:
    took = "failed" if choice.duration_ns is None else time_text(choice.duration_ns)
    return f"{took}: {choice.kind.label} {choice.name} {choice.config}".rstrip()


def _side(side: Side, settings: Settings) -> str:
    kernel, place = side.site.kernel, side.place
    shown = link("kernel", kernel, kernel_name(kernel))
    if place is None or place.file is None:
        return shown
    line = f"{short_path(place.file, settings)}:{place.line}"
    return f"{link('line', line)} {text(place.module or '')}{tag('div', shown)}"
