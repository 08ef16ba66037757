"""Owns what a terminal shows of several ranks together."""

from __future__ import annotations

from typing import Protocol, Unpack

from profiler_ext.exporters import tables
from profiler_ext.exporters.compile_texts import compile_text_of_ranks
from profiler_ext.exporters.console import print_notes, print_line
from profiler_ext.exporters.display_text import cache_bypass_text
from profiler_ext.exporters.headings import heading_of_ranks
from profiler_ext.exporters.idle_texts import cause_times
from profiler_ext.exporters.rich_parts import Console, Text
from profiler_ext.exporters.roofline_texts import utilisation_texts
from profiler_ext.exporters.skew_texts import skew_texts
from profiler_ext.exporters.table_texts import coverage_lines, records
from profiler_ext.exporters.tables.selection import Filters
from profiler_ext.exporters.terminal import print_coverage, print_top, report_of
from profiler_ext.exporters.terminal_findings import print_first
from profiler_ext.findings import Findings
from profiler_ext.records import Analysis


class Ranks(Protocol):
    """What a report of several ranks needs."""

    @property
    def analyses(self) -> tuple[Analysis, ...]:
        """The analyses, one for each rank."""

    @property
    def found(self) -> Findings:
        """What to do first."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What to tell the user."""

    def by(self, name: str, **filters: Unpack[Filters]) -> tables.DataFrame:
        """Return a summing table by its name.

        Args:
            name: the ``by`` of a table.
            **filters: the step, rank, phase or scope.
        """

    def table(self, name: str, **filters: Unpack[Filters]) -> tables.DataFrame:
        """Return a table by its name.

        Args:
            name: the table's name.
            **filters: the step, rank, phase or scope.
        """

    def coverage(self) -> tables.DataFrame:
        """Return the ledger."""

    def idle_by_cause(self) -> tables.DataFrame:
        """Return the idle time by cause."""


def print_ranks_report(
    ranks: Ranks,
    console: Console,
    *,
    by: str = "line",
    top: int | None = 15,
    depth: int | None = None,
    **filters: Unpack[Filters],
) -> None:
    """Print the ledger of several ranks together, and then the largest rows of one table.

    Args:
        ranks: their analyses, summed tables and notes.
        console: where to; bars fit its width.
        by: as in :func:`print_report`.
        top: as in :func:`print_report`.
        depth: as in :func:`print_report`.
        **filters: as in :func:`print_report`.

    Raises:
        UsageError: There is no such step, rank or phase, or ``top`` is less than 1.
    """
    settings = ranks.analyses[0].recording.settings
    report = report_of(by, top, depth, settings, ranks.table)
    table = ranks.by(by, **filters)
    console.print(Text(heading_of_ranks(ranks.analyses), style="bold"))
    print_first(ranks.found, settings, console)
    causes = cause_times(ranks.idle_by_cause())
    stragglers = (each.text for each in skew_texts(ranks.analyses))
    sentences = (*coverage_lines(ranks.analyses), *utilisation_texts(ranks.analyses), *stragglers)
    print_coverage(records(ranks.coverage()), causes, sentences, console)
    if (compiled := compile_text_of_ranks(ranks.analyses)) is not None:
        console.print(Text(compiled))
    for analysis in ranks.analyses:
        if (bypassed := cache_bypass_text(analysis.recording.graphs)) is not None:
            print_line(console, f"rank {analysis.recording.settings.rank}: {bypassed}", "yellow")
    print_top(report, table, console, filters)
    print_notes(ranks.notes, console)
