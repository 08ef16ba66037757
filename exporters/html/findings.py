"""Owns what report.html says first: what to do, with links to the line, module and kernel."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from profiler_ext.exporters.display_text import short_path
from profiler_ext.exporters.findings_texts import (
    IN_PAGE,
    SHOWN,
    findings_title,
    kernel_name,
    stake_texts,
    unjudged_texts,
    what_text,
    why_text,
)
from profiler_ext.exporters.html.links import link
from profiler_ext.exporters.html.words import rule_opened
from profiler_ext.findings import Finding, Where, find, find_of_ranks
from profiler_ext.printable import printable
from profiler_ext.records import Analysis, Settings


def findings(analyses: Sequence[Analysis]) -> str:
    """Return what to do first; the rest, and what could not be judged, can be opened.

    Args:
        analyses: one for each rank.
    """
    if not any(analysis.steps for analysis in analyses):
        return ""
    told = find(analyses[0]) if len(analyses) == 1 else find_of_ranks(analyses)
    settings = analyses[0].recording.settings
    items = [_item(each, settings) for each in told.found[:IN_PAGE]]
    shown = f"<ol>{''.join(items[:SHOWN])}</ol>" if items else ""
    more = _more("".join(items[SHOWN:]), len(told.found))
    unjudged = "".join(f"<p>{escape(line)}</p>" for line in unjudged_texts(told))
    lacking = _opened("rules that could not be judged", unjudged) if unjudged else ""
    title = escape(findings_title(told))
    return f'<section id="findings"><h2>{title}</h2>{shown}{more}{lacking}</section>\n'


def _more(rest: str, found: int) -> str:
    """Return what is behind a key; of very many findings how all are seen."""
    numbered = f'<ol start="{SHOWN + 1}">{rest}</ol>'
    if found > IN_PAGE:
        numbered += f"<p>and {found - IN_PAGE:,} more: profiler-ext report --findings</p>"
    return _opened(f"{found - SHOWN:,} more", numbered) if rest else ""


def _item(finding: Finding, settings: Settings) -> str:
    time, part = stake_texts(finding)
    head = f"<b>{time}</b> <b>{part}</b> {_text(what_text(finding))}"
    links = " · ".join(place_links(finding.where, settings))
    place = f"<p>{links}</p>" if links else ""
    why = f'<p class="quiet">{_text(why_text(finding))}</p>'
    means = rule_opened(finding.rule)
    return f"<li><p>{head}</p>{place}{why}<p>Try: {_text(finding.remedy)}</p>{means}</li>"


def place_links(where: Where, settings: Settings) -> list[str]:
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


def _opened(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>{body}</details>"


def _text(text: str) -> str:
    return escape(printable(text))
