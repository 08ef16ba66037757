"""The page of report.html: policy, scripts, and escaping.

Names come from a trace. In the page's text they are escaped; in the data none can end a script, and
the scripts write them as text only. The policy blocks other scripts and all fetches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from profiler_ext.exporters.html.buffers import buffers
from profiler_ext.exporters.html.data import report_data
from profiler_ext.exporters.html.elements import section, tag, text
from profiler_ext.exporters.html.links import glossary
from profiler_ext.exporters.html.memory import peaks
from profiler_ext.exporters.html.sections import (
    breakdown,
    communication,
    compiles,
    findings,
    notes,
    steps,
)
from profiler_ext.exporters.html.slices import Choices, controls
from profiler_ext.exporters.html.template import (
    bundled,
    json_text,
    render_page,
    resource,
    script_policy,
    write_page,
)
from profiler_ext.exporters.sources import local_sources, module_texts
from profiler_ext.exporters.views.formatting import style_sheet
from profiler_ext.exporters.views.steps import kind_texts
from profiler_ext.exporters.views.summary import heading, heading_of_ranks
from profiler_ext.records.analysis import Analysis

_SCRIPTS = (
    "shared/format.js",
    "shared/dom.js",
    "shared/table.js",
    "model.js",
    "words.js",
    "elements.js",
    "table.js",
    "columns.js",
    "launches.js",
    "details.js",
    "tree.js",
    "flame.js",
    "source.js",
    "tables.js",
    "search_index.js",
    "search.js",
    "controls.js",
    "timeline_drawing.js",
    "timeline.js",
    "memory_chart.js",
    "memory.js",
    "page.js",
)
# d3-flame-graph and the parts of d3 that it needs, in order of dependency.
_LIBRARY = (
    "d3-array-3.2.5",
    "d3-color-3.1.1",
    "d3-dispatch-3.0.2",
    "d3-ease-3.0.2",
    "d3-format-3.1.3",
    "d3-hierarchy-3.1.3",
    "d3-selection-3.0.1",
    "d3-timer-3.0.2",
    "d3-interpolate-3.0.2",
    "d3-time-3.1.1",
    "d3-time-format-4.1.1",
    "d3-scale-4.0.3",
    "d3-transition-3.0.2",
    "d3-flame-graph-5.0.0",
)
_LINKS = (
    ("findings", "recommendations"),
    ("breakdown", "breakdown"),
    ("lines", "lines"),
    ("modules", "modules"),
    ("timeline", "timeline"),
    ("memory", "memory"),
    ("source", "source"),
    ("kernels", "kernels"),
    ("flame", "flame graph"),
    ("steps", "steps"),
    ("communication", "communication"),
    ("compiles", "compiling"),
    ("buffers", "buffers"),
    ("graphs", "graphs"),
    ("words", "glossary"),
)
_FOLD = (
    '<p><label><input id="fold" type="checkbox" checked> numbered modules (layers.0, layers.1, '
    '...) as one</label> <span id="left-out" class="quiet"></span></p>'
)


def export_html(analysis: Analysis, path: Path, roots: Iterable[str | Path] = ()) -> Path:
    """Write the report as one self-contained page."""
    return export_ranks((analysis,), path, roots)


def export_ranks(
    analyses: Sequence[Analysis], path: Path, roots: Iterable[str | Path] = ()
) -> Path:
    """Write the report of several ranks as one page."""
    texts = local_sources(analyses, roots)
    for analysis in analyses:
        texts |= module_texts(analysis, roots)
    return write_page(path, html_text(analyses, texts))


def html_text(analyses: Sequence[Analysis], texts: Mapping[str, str] | None = None) -> str:
    """Return the page; ``texts`` are source files and generated modules by recorded path."""
    scripts = (*(resource(f"vendor/{name}.min.js") for name in _LIBRARY), bundled(_SCRIPTS))
    line = heading(analyses[0]) if len(analyses) == 1 else heading_of_ranks(analyses)
    data, chosen = report_data(analyses, texts or {})
    shown = {name: part for name, part in _sections(analyses, data, chosen) if part}
    return render_page(
        "page.html",
        title=text(f"profiler-ext: {line}"),
        heading="<br>".join(map(text, (line, *kind_texts(analyses[0])))),
        style=style_sheet() + resource("report.css"),
        policy=script_policy(scripts),
        links="".join(tag("a", title, href=f"#{name}") for name, title in _LINKS if name in shown),
        controls=controls(chosen),
        sections="".join(shown.values()),
        data=json_text(data),
        scripts="".join(f"<script>{script}</script>\n" for script in scripts),
    )


def _sections(
    analyses: Sequence[Analysis], data: Mapping[str, Any], chosen: Choices
) -> Iterator[tuple[str, str]]:
    """Yield the sections in order, empty where there is nothing to show."""
    ran = bool(data["sites"])
    yield "findings", findings(analyses)
    yield "notes", notes(analyses)
    yield "breakdown", breakdown(chosen)
    lines, modules = _drawn("lines", "Source lines"), _drawn("modules", "Modules (inclusive)")
    yield "lines", f'<div class="pair">{lines}' if ran else ""
    yield "modules", f"{modules}</div>" if ran else ""
    yield "timeline", _drawn("timeline", "Timeline of a step") if data["timelines"] else ""
    memory = _drawn("memory", "Device memory", peaks(analyses))
    yield "memory", memory if data["memory"]["steps"] else ""
    yield "source", _drawn("source", "Source, with time in the margin") if data["files"] else ""
    yield "kernels", _drawn("kernels", "Kernels") if ran else ""
    flames = _drawn("flame", "By module, then line, then kernel", _FOLD, "content sides")
    yield "flame", flames if ran else ""
    yield "steps", steps(analyses)
    yield "communication", communication(analyses)
    yield "compiles", compiles(analyses)
    yield "buffers", buffers(analyses)
    yield "graphs", _drawn("graphs", "Compiled graphs") if data["graphs"] else ""
    yield "words", glossary(analyses)


def _drawn(name: str, title: str, above: str = "", kind: str = "content") -> str:
    """Return a section that a script fills."""
    return section(name, title, above + tag("div", class_=kind))
