"""Owns what report.html says first: what to do, with links to the line, module and kernel."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from profiler_ext.exporters.display_text import short_path
from profiler_ext.exporters.findings_texts import (
    MAX_ON_PAGE,
    SHOWN,
    findings_heading,
    kernel_name,
    time_at_stake_texts,
    skipped_rules_lines,
    what_text,
    why_text,
)
from profiler_ext.exporters.html.links import link
from profiler_ext.exporters.html.words import rule_details
from profiler_ext.findings import Finding, Location, find, find_on_ranks
from profiler_ext.printable import printable
from profiler_ext.records import Analysis, Settings


def findings(analyses: Sequence[Analysis]) -> str:
    """Return what to do first; the rest, and what could not be judged, can be opened.

    Args:
        analyses: one for each rank.
    """
    if not any(analysis.steps for analysis in analyses):
        return ""
    result = find(analyses[0]) if len(analyses) == 1 else find_on_ranks(analyses)
    settings = analyses[0].recording.settings
    items = [_finding_item(each, settings) for each in result.found[:MAX_ON_PAGE]]
    shown = f"<ol>{''.join(items[:SHOWN])}</ol>" if items else ""
    more = _more_findings("".join(items[SHOWN:]), len(result.found))
    unjudged = "".join(f"<p>{escape(line)}</p>" for line in skipped_rules_lines(result))
    skipped = _details_html("rules that could not be judged", unjudged) if unjudged else ""
    title = escape(findings_heading(result))
    return f'<section id="findings"><h2>{title}</h2>{shown}{more}{skipped}</section>\n'


def _more_findings(rest: str, found: int) -> str:
    """Return what is behind a key; of very many findings how all are seen."""
    numbered = f'<ol start="{SHOWN + 1}">{rest}</ol>'
    if found > MAX_ON_PAGE:
        numbered += f"<p>and {found - MAX_ON_PAGE:,} more: profiler-ext report --findings</p>"
    return _details_html(f"{found - SHOWN:,} more", numbered) if rest else ""


def _finding_item(finding: Finding, settings: Settings) -> str:
    time, part = time_at_stake_texts(finding)
    head = f"<b>{time}</b> <b>{part}</b> {_text(what_text(finding))}"
    links = " · ".join(place_links(finding.where, settings))
    place = f"<p>{links}</p>" if links else ""
    why = f'<p class="quiet">{_text(why_text(finding))}</p>'
    means = rule_details(finding.rule)
    return f"<li><p>{head}</p>{place}{why}<p>Try: {_text(finding.remedy)}</p>{means}</li>"


def place_links(where: Location, settings: Settings) -> list[str]:
    """Return the parts of a place, each as a link to where the page shows it.

    Args:
        where: the place.
        settings: has the roots, to shorten paths.
    """
    line = None if where.file is None else f"{short_path(where.file, settings)}:{where.line}"
    kernel = where.kernel and kernel_name(where.kernel)
    named = (
        ("line", line, line),
        ("module", where.module, where.module),
        ("kernel", where.kernel, kernel),
    )
    parts = [link(kind, name, shown) for kind, name, shown in named if name and shown]
    if where.graph:
        parts.append(_text(f"compile {where.graph}"))
    if where.code:
        parts.append(f"<code>{_text(where.code.strip())}</code>")
    return parts


def _details_html(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>{body}</details>"


def _text(text: str) -> str:
    return escape(printable(text))
