"""Owns the words of an alignment: what a graph call ran, and where each piece belongs."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_ext.records import GapReason, SiteEvidence


@dataclass(frozen=True, slots=True)
class Unit:
    """One thing that a graph call ran: an operator, or a device event without an operator.

    Attributes:
        name: the operator's or the device event's name, without a ``graph_0_`` prefix.
        on_device: no operator is known, so the name is the device event's.
        replayed: it was launched by the replay of a CUDA graph.
        is_kernel: for a device event: neither a copy nor a memset.
        launched: for an operator: it launched something.
    """

    name: str
    on_device: bool = False
    replayed: bool = False
    is_kernel: bool = True
    launched: bool = True

    @property
    def order_evidence(self) -> SiteEvidence:
        """The rule that its order alone makes."""
        return SiteEvidence.REPLAY_ORDER if self.replayed else SiteEvidence.CALL_ORDER


@dataclass(frozen=True, slots=True)
class Match:
    """Where a unit belongs: a call site (index into the sites), or a gap.

    Attributes:
        site: index of the call site, ``None`` for a gap.
        evidence: the rule that led there.
        gap: why there is no call site.
    """

    site: int | None = None
    evidence: SiteEvidence | None = None
    gap: GapReason | None = None
