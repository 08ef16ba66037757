"""Owns what the view says first: the largest findings in words."""

from __future__ import annotations

from profiler_ext.exporters.findings_texts import (
    SHOWN,
    findings_heading,
    more_text,
    time_at_stake_texts,
    what_text,
    where_text,
    why_text,
)
from profiler_ext.exporters.tensorboard_plugin.document import TopFindings, FindingText
from profiler_ext.findings import Finding, Findings
from profiler_ext.printable import printable
from profiler_ext.records import Settings


def top_findings(result: Findings, settings: Settings) -> TopFindings:
    """Return what to do first.

    Args:
        told: what the rules found.
        settings: has the roots, to shorten paths.
    """
    return TopFindings(
        title=findings_heading(result),
        found=tuple(_finding_text(each, settings) for each in result.found[:SHOWN]),
        more=more_text(result, "profiler-ext report --findings") or "",
    )


def _finding_text(finding: Finding, settings: Settings) -> FindingText:
    return FindingText(
        at_stake=" ".join(filter(None, time_at_stake_texts(finding))),
        what=what_text(finding),
        where=where_text(finding.where, settings),
        why=why_text(finding),
        remedy=printable(finding.remedy),
    )
