"""Owns what a terminal shows of findings: what to do first, and what that rests on."""

from __future__ import annotations

from profiler_ext.exporters.console import print_line
from profiler_ext.exporters.display_text import require_top
from profiler_ext.exporters.findings_texts import (
    MAX_ON_PAGE,
    SHOWN,
    findings_heading,
    more_text,
    time_at_stake_texts,
    skipped_rules_lines,
    what_text,
    where_text,
    why_text,
)
from profiler_ext.exporters.rich_parts import Console, Table, Text
from profiler_ext.findings import Finding, Findings
from profiler_ext.printable import printable
from profiler_ext.records import Settings

_TIME, _PART = 7, 6
ALL = "report --findings"


def print_first(findings: Findings, settings: Settings, console: Console) -> None:
    """Print the largest findings, or that there is none.

    Args:
        findings: what the rules found.
        settings: has the roots, to shorten paths.
        console: where to; texts are wrapped at its width.
    """
    _print(findings, findings.found[:SHOWN], settings, console)
    if (more := more_text(findings, f"profiler-ext {ALL}")) is not None:
        print_line(console, more, "dim")
    console.print()


def print_all(
    findings: Findings, settings: Settings, console: Console, top: int | None = None
) -> None:
    """Print the findings, and the rules that could not be judged.

    Args:
        findings: what the rules found.
        settings: has the roots, to shorten paths.
        console: where to; texts are wrapped at its width.
        top: so many findings at most; ``None`` for as many as a page has.

    Raises:
        UsageError: ``top`` is less than 1.
    """
    shown = findings.found[: MAX_ON_PAGE if top is None else require_top(top)]
    _print(findings, shown, settings, console)
    if (left := len(findings.found) - len(shown)) > 0:
        console.print(
            Text(f"and {left:,} more: --top {len(findings.found)} prints all", style="dim")
        )
    for line in skipped_rules_lines(findings):
        console.print(Text(line, style="dim"))


def _print(
    findings: Findings, shown: tuple[Finding, ...], settings: Settings, console: Console
) -> None:
    console.print(Text(findings_heading(findings), style="bold"))
    if not shown:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 1), show_header=False)
    table.add_column(width=_TIME, justify="right", no_wrap=True)
    table.add_column(width=_PART, justify="right", no_wrap=True)
    table.add_column()
    for finding in shown:
        table.add_row(*map(Text, time_at_stake_texts(finding)), _words(finding, settings))
    console.print(table)


def _words(finding: Finding, settings: Settings) -> Text:
    text = Text(what_text(finding), style="bold")
    if where := where_text(finding.where, settings):
        text.append(f"\n{where}", "not bold cyan")
    text.append(f"\n{why_text(finding)}", "not bold dim")
    text.append(f"\ntry: {printable(finding.remedy)}", "not bold green")
    return text
