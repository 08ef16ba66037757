"""Owns what the view says first: the largest findings in words."""

from __future__ import annotations

from profiler_ext.exporters.findings_texts import (
    SHOWN,
    findings_title,
    more_text,
    stake_texts,
    what_text,
    where_text,
    why_text,
)
from profiler_ext.exporters.tensorboard_plugin.document import First, Found
from profiler_ext.findings import Finding, Findings
from profiler_ext.printable import printable
from profiler_ext.records import Settings


def first_of(told: Findings, settings: Settings) -> First:
    """Return what to do first.

    Args:
        told: what the rules found.
        settings: has the roots, to shorten paths.
    """
    return First(
        title=findings_title(told),
        found=tuple(_found(each, settings) for each in told.found[:SHOWN]),
        more=more_text(told, "profiler-ext report --findings") or "",
    )


def _found(finding: Finding, settings: Settings) -> Found:
    return Found(
        at_stake=" ".join(filter(None, stake_texts(finding))),
        what=what_text(finding),
        where=where_text(finding.where, settings),
        why=why_text(finding),
        remedy=printable(finding.remedy),
    )
