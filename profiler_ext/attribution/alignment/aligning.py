"""Aligns what one graph call ran with the graph's call sites, by longest common subsequences.

A work item is attributed to a call site only if every longest common subsequence of the two orders
agrees; the rest is a gap with its reason, and so is all of a call whose order differs too much from
the sites'. Such a subsequence stays near the diagonal, so lengths are computed in a band that grows
until it must hold every longest one; more than ``MAX_CELLS`` is not decided.

Replayed library kernels carry no operator and no name of their call site. They are attributed where
a segment holds just what each call was observed to launch; without observations, a lone call
between two anchors takes what lies between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from profiler_ext.attribution.alignment.library_kernels import KnownKernels
from profiler_ext.attribution.alignment.loops import LoopGrammar, is_in_loop
from profiler_ext.attribution.graph_calls import Match, WorkItem
from profiler_ext.attribution.trace.lookups import Flags
from profiler_ext.kineto import classify
from profiler_ext.records.events import Ints
from profiler_ext.records.evidence import SiteEvidence
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.provenance import CallSite
from profiler_ext.records.vocabulary import SiteKind

# Two orders of 4,000 that have nothing in common, or a band of 800 around 20,000
MAX_CELLS = 1 << 24
_FIRST_MARGIN = 32
_OUT_OF_BAND = -(1 << 29)
_Lengths = npt.NDArray[np.int32]
_UNKNOWN = -2  # the number of a name that no site has


@dataclass(frozen=True, slots=True)
class Names:
    """The names of two orders, as numbers."""

    rows: Ints  # the name of each row
    kinds: Ints  # which of its names a column must share with that row
    columns: Ints  # the names of each column, one line for each kind; ``-1`` where it has none

    def are_pairwise_equal(self) -> bool:
        """Tell whether each row has the name of the column at its position, and none is left."""
        same = len(self.rows) == self.columns.shape[1]
        return same and bool(
            (self.columns[self.kinds, np.arange(len(self.rows))] == self.rows).all()
        )

    def reversed(self) -> Names:
        """Return the same from the last to the first."""
        return Names(self.rows[::-1], self.kinds[::-1], self.columns[:, ::-1])


def agreed_pairs(names: Names) -> list[tuple[int, int]] | None:
    """Return the pairs (row, column) in every longest common subsequence; ``None`` if too many."""
    result = _banded(names)
    if result is None:
        return None
    before, margin = result
    below = _Band(names, margin).below
    after = _lengths(names.reversed(), margin)[::-1, ::-1]
    longest = after[0, below]
    matches = _Band(names, margin).matches()
    through = matches & (before[:-1] + after[1:] + 1 == longest)
    left_out = (before[:-1, 1:] + after[1:, :-1] == longest).any(axis=1)
    certain = np.flatnonzero((through.sum(axis=1) == 1) & ~left_out)
    columns = certain + through[certain].argmax(axis=1) - below
    return list(zip(certain.tolist(), columns.tolist(), strict=True))


class _Band:
    """The cells near the diagonal: cell ``t`` of row ``i`` is that of column ``i + t - below``.

    Its width is the difference of the lengths, and a margin to either side.
    """

    def __init__(self, names: Names, margin: int) -> None:
        rows, columns = len(names.rows), names.columns.shape[1]
        self.below = max(rows - columns, 0) + margin
        self.above = max(columns - rows, 0) + margin
        self.width = self.below + self.above + 1
        self._names = names
        ends = ((0, 0), (self.below, max(rows + self.above - columns, 0) + 1))
        self._columns = np.pad(names.columns, ends, constant_values=-1)

    def matches_of(self, row: int) -> npt.NDArray[np.bool_]:
        """Flag the columns of a row's band that have its name."""
        window = self._columns[self._names.kinds[row], row : row + self.width]
        matches: npt.NDArray[np.bool_] = window == self._names.rows[row]
        return matches

    def matches(self) -> npt.NDArray[np.bool_]:
        result = np.zeros((len(self._names.rows), self.width), dtype=np.bool_)
        for row in range(len(result)):
            result[row] = self.matches_of(row)
        return result


def _banded(names: Names) -> tuple[_Lengths, int] | None:
    """Return the lengths in a band that holds all longest common subsequences, and its margin."""
    rows, columns = len(names.rows), names.columns.shape[1]
    margin = _FIRST_MARGIN
    while True:
        band = _Band(names, margin)
        if rows * band.width > MAX_CELLS:
            return None
        lengths = _lengths(names, margin)
        # As many rows as one leaves out, and no more, it may be below the diagonal.
        if rows - lengths[rows, columns - rows + band.below] <= band.below:
            return lengths, margin
        margin *= 2


def _lengths(names: Names, margin: int) -> _Lengths:
    """Return the length of the longest common subsequence of each pair of prefixes in a band."""
    band = _Band(names, margin)
    lengths = np.full((len(names.rows) + 1, band.width + 1), _OUT_OF_BAND, dtype=np.int32)
    lengths[0, band.below : -1] = 0
    for row in range(len(names.rows)):
        last = lengths[row]
        extended = np.where(band.matches_of(row), last[:-1] + 1, _OUT_OF_BAND)
        np.maximum.accumulate(np.maximum(last[1:], extended), out=lengths[row + 1, :-1])
    return lengths[:, :-1]


@dataclass(frozen=True, slots=True)
class Segment:
    """The part between two anchors."""

    sites: tuple[int, ...]  # indices of its call sites
    work: tuple[int, ...]  # indices of what ran there


class OpenSegments:
    """Attributes the open items of one graph call to call sites, as far as names decide."""

    def __init__(
        self,
        sites: Sequence[CallSite],
        items: Sequence[WorkItem],
        expected: Flags,
        known_kernels: KnownKernels,
    ) -> None:
        self._sites, self._items = sites, items
        self._expected, self._known_kernels = expected, known_kernels

    def resolve(self, anchors: Mapping[int, int]) -> dict[int, Match]:
        """Return the matches of the open items that can be decided."""
        ends = [(-1, -1), *sorted(anchors.items()), (len(self._items), len(self._sites))]
        segments = [
            Segment(tuple(range(site + 1, next_site)), tuple(range(item + 1, next_item)))
            for (item, site), (next_item, next_site) in pairwise(ends)
        ]
        too_few = [self._is_starved(segment) for segment in segments]
        uncertain = [any(too_few[max(at - 1, 0) : at + 2]) for at in range(len(segments))]
        matches: dict[int, Match] = {}
        for segment, is_uncertain in zip(segments, uncertain, strict=True):
            matches.update(self._on_device(segment, is_uncertain))
            matches.update(self._nameless(segment))
        return matches

    def _is_starved(self, segment: Segment) -> bool:
        """Tell whether sites ran less than they must: then the neighbours may have theirs."""
        return len(segment.work) < sum(
            self._known_kernels.kernels.get(site) != () for site in segment.sites
        )

    def _on_device(self, segment: Segment, is_uncertain: bool) -> dict[int, Match]:
        """Match each device event where names or the anchors decide, else give the reason."""
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
        """Return the site of each item if a segment holds just what its sites are known to run."""
        kernels = self._known_kernels.kernels
        if not all(site in kernels for site in segment.sites):
            return None
        owned = [(site, name) for site in segment.sites for name in kernels[site]]
        holds = [name for _, name in owned] == [self._items[item].name for item in items]
        return [site for site, _ in owned] if holds else None

    def _name_evidence(self, segment: Segment) -> SiteEvidence | None:
        # Where several sites share a segment, another run's names placed the item.
        if not any(self._items[item].replayed for item in segment.work):
            return None
        is_stored = len(segment.sites) > 1 and not self._known_kernels.from_store.isdisjoint(
            segment.sites
        )
        return SiteEvidence.STORED_KERNELS if is_stored else SiteEvidence.REPLAY_KERNELS

    def _contradicts(self, segment: Segment) -> bool:
        """Tell whether sites of a segment were observed to run something else, without a reason."""
        is_seen = any(site in self._known_kernels.kernels for site in segment.sites)
        return is_seen and not self._known_kernels.is_reselected

    def _owners_by_place(self, segment: Segment, items: Sequence[int]) -> list[int] | None:
        if len(segment.sites) == 1:
            return [segment.sites[0]] * len(items)
        all_kernels = all(self._items[item].is_kernel for item in items)
        is_one_each = all_kernels and len(items) == len(segment.sites)
        return (
            list(segment.sites) if is_one_each and not self._known_kernels.is_contradicted else None
        )

    def _owners_by_family(self, segment: Segment, items: Sequence[int]) -> list[int] | None:
        # Each of them begins once, with a kernel that cannot continue the call before it.
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
        """Pair sites whose operator is unknown with the operators left over."""
        # Only where nothing else is open in the segment, and the numbers agree.
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


def align(
    sites: Sequence[CallSite], items: Sequence[WorkItem], known_kernels: KnownKernels
) -> tuple[Match, ...]:
    """Match each item of one graph call with its call site."""
    if not any(map(is_in_loop, sites)):
        return _align(sites, items, known_kernels)
    ran = _sites_that_ran(sites, items)
    if ran is None:
        return _align_around_loops(sites, items)
    matches = _align([site for _, site in ran], items, KnownKernels())
    return tuple(
        match if match.site is None else replace(match, site=ran[match.site][0])
        for match in matches
    )


def _align_around_loops(sites: Sequence[CallSite], items: Sequence[WorkItem]) -> tuple[Match, ...]:
    """Match what ran outside of loops; how often those ran is unknown."""
    inside = {_called_name(site) for site in sites if is_in_loop(site)}
    return tuple(
        Match(gap=GapReason.ALIGNMENT_MISMATCH)
        if item.name in inside or (match.site is not None and is_in_loop(sites[match.site]))
        else match
        for item, match in zip(items, _align(sites, items, KnownKernels()), strict=True)
    )


def _sites_that_ran(
    sites: Sequence[CallSite], items: Sequence[WorkItem]
) -> list[tuple[int, CallSite]] | None:
    """Return the sites as often as they ran, each with its index, if that can be decided."""
    # A C++ kernel in a GPU graph leaves no event: one that nothing names may have run.
    ran = {item.name for item in items}
    visible = [at for at, s in enumerate(sites) if s.kind is not SiteKind.CPP or s.kernel in ran]
    grammar = LoopGrammar([sites[at] for at in visible], _called_name)
    names = [item.name for item in items if grammar.knows(item.name)]
    order = grammar.order(names)
    if order is None:
        return None
    pairs = [(visible[at], name) for at, name in zip(order, names, strict=True)]
    return [(at, replace(sites[at], op=name) if sites[at].op else sites[at]) for at, name in pairs]


def _align(
    sites: Sequence[CallSite], items: Sequence[WorkItem], known_kernels: KnownKernels
) -> tuple[Match, ...]:
    names = _names(sites, items)
    expected = _expected(names)
    anchors = _certain_pairs(names, expected)
    if anchors is None:
        return (Match(gap=GapReason.ALIGNMENT_MISMATCH),) * len(items)
    matches = [_anchored(sites, items, anchors, at) for at in range(len(items))]
    for at, match in OpenSegments(sites, items, expected, known_kernels).resolve(anchors).items():
        matches[at] = match
    return tuple(
        match or _unplaced(item, is_expected)
        for match, item, is_expected in zip(matches, items, expected.tolist(), strict=True)
    )


def _names(sites: Sequence[CallSite], items: Sequence[WorkItem]) -> Names:
    codes: dict[str, int] = {}
    columns = [
        [codes.setdefault(name, len(codes)) for name in map(name_of, sites)]
        for name_of in (_called_name, _device_name)
    ]
    return Names(
        rows=np.array([codes.get(item.name, _UNKNOWN) for item in items], dtype=np.int64),
        kinds=np.array([int(item.on_device) for item in items], dtype=np.int64),
        columns=np.array(columns, dtype=np.int64).reshape(2, len(sites)),
    )


def _expected(names: Names) -> Flags:
    by_kind = np.array([np.isin(names.rows, known) for known in names.columns])
    return by_kind[names.kinds, np.arange(len(names.rows))]


def _called_name(site: CallSite) -> str:
    return (site.op or "") if site.kind is SiteKind.EXTERN else site.kernel


def _device_name(site: CallSite) -> str:
    """Return the name of the site's kernel on the device; a library's is unknown."""
    if site.kind is SiteKind.EXTERN:
        return ""
    if site.kind is SiteKind.USER_TRITON:
        return device_names(site)[-1]
    return site.kernel


def device_names(site: CallSite) -> tuple[str, ...]:
    """Return the names that a generated kernel's device event may have."""
    # A user's Triton kernel has its function's name; Inductor numbers its calls.
    stem, _, number = site.kernel.rpartition("_")
    is_numbered = site.kind is SiteKind.USER_TRITON and number.isdigit()
    return (site.kernel, stem) if is_numbered else (site.kernel,)


def _certain_pairs(names: Names, expected: Flags) -> dict[int, int] | None:
    """Return the pairs (item, site) of every longest common subsequence."""
    # None where the orders differ too much to compute them.
    items = np.flatnonzero(expected)
    ran = [
        np.isin(known, names.rows[names.kinds == kind]) for kind, known in enumerate(names.columns)
    ]
    sites = np.flatnonzero(np.logical_or.reduce(ran))
    named = Names(names.rows[items], names.kinds[items], names.columns[:, sites])
    if named.are_pairwise_equal():
        return dict(zip(items.tolist(), sites.tolist(), strict=True))
    pairs = agreed_pairs(named)
    return None if pairs is None else {int(items[item]): int(sites[at]) for item, at in pairs}


def _anchored(
    sites: Sequence[CallSite], items: Sequence[WorkItem], anchors: Mapping[int, int], at: int
) -> Match | None:
    if at not in anchors:
        return None
    site = sites[anchors[at]]
    item = items[at]
    is_library = site.kind is SiteKind.EXTERN
    return Match(anchors[at], SiteEvidence.CALL_ORDER_OP if is_library else item.order_evidence)


def _unplaced(item: WorkItem, is_expected: bool) -> Match:
    """Return why an item has no site: the wrapper's own work, or a contradiction."""
    contradicts = is_expected or classify.is_generated_kernel(item.name)
    return Match(gap=GapReason.ALIGNMENT_MISMATCH if contradicts else GapReason.WRAPPER_GLUE)
