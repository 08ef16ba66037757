"""Owns what lies open between the anchors of an alignment: sites and work items that no name ties.

Replayed library kernels carry no operator and no name that their call site has. What each call
was seen to launch leads them, where a segment holds just that; where nothing was seen, a lone call
between two anchors takes what lies between them, and all else is a gap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from profiler_ext.attribution.alignment.learnt import KnownKernels
from profiler_ext.attribution.alignment.matching import Match
from profiler_ext.attribution.calls.patterns import WorkItem
from profiler_ext.attribution.trace.lookups import Flags
from profiler_ext.kineto import classify
from profiler_ext.records import CallSite, GapReason, SiteEvidence, SiteKind


@dataclass(frozen=True, slots=True)
class Segment:
    """What lies between an anchor and the next.

    Attributes:
        sites: indices of the call sites there.
        work: indices of what ran there.
    """

    sites: tuple[int, ...]
    work: tuple[int, ...]


class OpenSegments:
    """Leads what lies open in one graph call to its call sites, as far as names decide."""

    def __init__(
        self,
        sites: Sequence[CallSite],
        items: Sequence[WorkItem],
        expected: Flags,
        known_kernels: KnownKernels,
    ) -> None:
        """Note what was called.

        Args:
            sites: the call sites.
            items: what ran.
            expected: items that have the name of some site.
            learnt: what other calls taught of library calls.
        """
        self._sites, self._items = sites, items
        self._expected, self._known_kernels = expected, known_kernels

    def resolve(self, anchors: Mapping[int, int]) -> dict[int, Match]:
        """Return the matches of the open items of which something can be said."""
        segments = self._between(anchors)
        too_few = [self._is_starved(segment) for segment in segments]
        uncertain = [any(too_few[max(at - 1, 0) : at + 2]) for at in range(len(segments))]
        matches: dict[int, Match] = {}
        for segment, is_uncertain in zip(segments, uncertain, strict=True):
            matches.update(self._on_device(segment, is_uncertain))
            matches.update(self._nameless(segment))
        return matches

    def _between(self, anchors: Mapping[int, int]) -> list[Segment]:
        ends = [(-1, -1), *sorted(anchors.items()), (len(self._items), len(self._sites))]
        return [
            Segment(tuple(range(site + 1, next_site)), tuple(range(item + 1, next_item)))
            for (item, site), (next_item, next_site) in pairwise(ends)
        ]

    def _is_starved(self, segment: Segment) -> bool:
        """Tell whether sites ran less than they must: then the neighbours may have theirs."""
        return len(segment.work) < sum(
            self._known_kernels.kernels.get(site) != () for site in segment.sites
        )

    def _on_device(self, segment: Segment, is_uncertain: bool) -> dict[int, Match]:
        """Give each device event its site where names or the anchors decide, else the reason."""
        items = [item for item in segment.work if self._items[item].on_device]
        if not segment.sites:
            return dict.fromkeys(items, Match(gap=GapReason.WRAPPER_GLUE))
        owners = self._owners_by_name(segment, items)
        if owners is not None:
            return self._matches(items, owners, self._name_evidence(segment))
        if is_uncertain or not self._are_libraries(segment) or self._contradicts(segment):
            return dict.fromkeys(items, Match(gap=GapReason.ALIGNMENT_MISMATCH))
        owners = self._owners_by_place(segment, items)
        if owners is not None:
            return self._matches(items, owners, None)
        owners = self._owners_by_family(segment, items)
        if owners is not None:
            return self._matches(items, owners, SiteEvidence.REPLAY_FAMILIES)
        return dict.fromkeys(items, Match(gap=GapReason.AMBIGUOUS_EXTERN_RUN))

    def _matches(
        self, items: Sequence[int], owners: Sequence[int], evidence: SiteEvidence | None
    ) -> dict[int, Match]:
        pairs = zip(items, owners, strict=True)
        return {u: Match(site, evidence or self._items[u].order_evidence) for u, site in pairs}

    def _owners_by_name(self, segment: Segment, items: Sequence[int]) -> list[int] | None:
        """Return the site of each item if a segment holds just what its sites were seen to run."""
        kernels = self._known_kernels.kernels
        if not all(site in kernels for site in segment.sites):
            return None
        owned = [(site, name) for site in segment.sites for name in kernels[site]]
        holds = [name for _, name in owned] == [self._items[item].name for item in items]
        return [site for site, _ in owned] if holds else None

    def _name_evidence(self, segment: Segment) -> SiteEvidence | None:
        """Where several sites share a segment, another run's names placed the item."""
        if not any(self._items[item].replayed for item in segment.work):
            return None
        is_stored = len(segment.sites) > 1 and not self._known_kernels.from_store.isdisjoint(segment.sites)
        return SiteEvidence.STORED_KERNELS if is_stored else SiteEvidence.REPLAY_KERNELS

    def _contradicts(self, segment: Segment) -> bool:
        """Tell whether sites of a segment were seen to run something else, and nothing says why."""
        is_seen = any(site in self._known_kernels.kernels for site in segment.sites)
        return is_seen and not self._known_kernels.is_reselected

    def _owners_by_place(self, segment: Segment, items: Sequence[int]) -> list[int] | None:
        """Return the site of each item where it cannot be another, as each site runs a kernel."""
        if len(segment.sites) == 1:
            return [segment.sites[0]] * len(items)
        all_kernels = all(self._items[item].is_kernel for item in items)
        is_one_each = all_kernels and len(items) == len(segment.sites)
        return list(segment.sites) if is_one_each and not self._known_kernels.is_contradicted else None

    def _owners_by_family(self, segment: Segment, items: Sequence[int]) -> list[int] | None:
        """Return the site of each item where as many calls begin as there are sites.

        Each of them begins once, and with what cannot go on from the one before it.
        """
        families, kernels = self._known_kernels.families, self._known_kernels.kernels
        calling = [site for site in segment.sites if kernels.get(site) != ()]
        parts = families.parts([self._items[item].name for item in items])
        are_plain = all(self._sites[site].op in families.plain_ops for site in calling)
        if not self._known_kernels.is_reselected or parts is None or not are_plain:
            return None
        return [calling[part] for part in parts] if parts[-1] + 1 == len(calling) else None

    def _are_libraries(self, segment: Segment) -> bool:
        return all(self._sites[site].kind is SiteKind.EXTERN for site in segment.sites)

    def _nameless(self, segment: Segment) -> dict[int, Match]:
        """Pair sites whose operator capture could not name with the operators left over.

        Only where nothing else lies open in the segment, and the numbers agree.
        """
        called = [item for item in segment.work if self._items[item].launched]
        is_nameless = self._are_libraries(segment) and not any(
            self._sites[s].op for s in segment.sites
        )
        is_left_over = all(self._is_left_over(item) for item in called)
        if not (is_nameless and is_left_over and len(called) == len(segment.sites)):
            return {}
        by_order = SiteEvidence.CALL_ORDER
        return {u: Match(s, by_order) for u, s in zip(called, segment.sites, strict=True)}

    def _is_left_over(self, at: int) -> bool:
        item = self._items[at]
        is_operator = not item.on_device and classify.is_dispatched_op(item.name)
        return is_operator and not self._expected[at]
