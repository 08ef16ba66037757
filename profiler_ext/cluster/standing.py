"""Owns which of the ranks that were read stand in a job's tables, and which are gaps by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence

from profiler_ext.cluster.records import FileGap, RankFacts, RankGap, RankPart

_MOST_NAMED = 100_000


def standing(
    read: Sequence[RankPart], gaps: Iterable[RankGap]
) -> tuple[list[RankPart], list[RankGap]]:
    """Return the ranks that belong together, in order of rank, and what does not.

    Args:
        read: what was read.
        gaps: what was not.

    Returns:
        The ranks, and all gaps, in order of rank.
    """
    found = list(gaps)
    told = _told(read, found)
    parts = _alike(told, lambda facts: facts.torch_version, FileGap.OTHER_TORCH, "torch {}", found)
    parts = _alike(parts, lambda facts: facts.world_size, FileGap.OTHER_JOB, "{} ranks", found)
    parts = _once(parts, found)
    known = {part.facts.rank for part in parts} | {gap.rank for gap in found}
    sizes = [part.facts.world_size for part in parts]
    wanted = range(min(max(sizes, default=0), _MOST_NAMED))
    found += [
        RankGap(FileGap.MISSING, rank, "", "", f"the other ranks tell of {len(wanted)}")
        for rank in wanted
        if rank not in known
    ]
    return parts, sorted(found, key=_in_order)


def _told(read: Sequence[RankPart], found: list[RankGap]) -> list[RankPart]:
    """Keep those that tell their rank, where there are several."""
    if len(read) < 2:
        return list(read)
    lacking = "no rank in its distributedInfo, and it is in no folder rank_N"
    found += [
        RankGap(FileGap.NO_RANK, None, part.facts.host, part.facts.url, lacking)
        for part in read
        if not part.facts.is_rank_told
    ]
    return [part for part in read if part.facts.is_rank_told]


def _alike(
    parts: Sequence[RankPart],
    told: Callable[[RankFacts], Hashable],
    reason: FileGap,
    words: str,
    found: list[RankGap],
) -> list[RankPart]:
    """Keep those that tell what most tell; of as many, what the lowest rank tells."""
    lowest = sorted(parts, key=lambda part: part.facts.rank)
    counts = Counter(told(part.facts) for part in lowest)
    if len(counts) < 2:
        return list(parts)
    (usual, count), *_ = counts.most_common(1)
    others = [part for part in parts if told(part.facts) != usual]
    found += [
        _gap(
            part.facts,
            reason,
            f"{words.format(told(part.facts) or 'not told')}, where {count} of {len(parts)} files "
            f"have {words.format(usual or 'not told')}",
        )
        for part in others
    ]
    return [part for part in parts if told(part.facts) == usual]


def _once(parts: Sequence[RankPart], found: list[RankGap]) -> list[RankPart]:
    """Keep one of each rank: of equal files the first, of others none, as nobody can choose."""
    by_rank: dict[int, list[RankPart]] = {}
    for part in parts:
        by_rank.setdefault(part.facts.rank, []).append(part)
    kept = []
    for rank in sorted(by_rank):
        first, *others = sorted(by_rank[rank], key=lambda part: part.facts.url)
        are_equal = all(each.facts.digest == first.facts.digest for each in others)
        if are_equal:
            kept.append(first)
        said = (
            f"the same content as {first.facts.url}, which stands"
            if are_equal
            else f"{1 + len(others)} files of it that differ, none of which stands"
        )
        found += [
            _gap(each.facts, FileGap.TWICE, said)
            for each in (others if are_equal else (first, *others))
        ]
    return kept


def _gap(facts: RankFacts, reason: FileGap, found: str) -> RankGap:
    return RankGap(reason, facts.rank, facts.host, facts.url, found)


def _in_order(gap: RankGap) -> tuple[float, str]:
    return (float("inf") if gap.rank is None else gap.rank), gap.url
