"""Owns where a piece of what a graph call ran belongs: a call site, or a gap."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_ext.records import GapReason, SiteEvidence


@dataclass(frozen=True, slots=True)
class Match:
    """Where a work item belongs: a call site (index into the sites), or a gap.

    Attributes:
        site: index of the call site, ``None`` for a gap.
        evidence: the rule that led there.
        gap: why there is no call site.
    """

    site: int | None = None
    evidence: SiteEvidence | None = None
    gap: GapReason | None = None
