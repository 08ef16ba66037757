"""Owns which of the ranks that were read stand in a job's tables, and which are gaps by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence

from profiler_ext.cluster.records import FileGap, RankFacts, RankGap, RankSummary

_MAX_MISSING_RANKS = 100_000


def standing(
    read: Sequence[RankSummary], gaps: Iterable[RankGap]
) -> tuple[list[RankSummary], list[RankGap]]:
    """Return the ranks that belong together, in order of rank, and what does not.

    Args:
        read: what was read.
        gaps: what was not.

    Returns:
        The ranks, and all gaps, in order of rank.
    """
    result = list(gaps)
    value_of = _with_known_rank(read, result)
    parts = _majority(value_of, lambda facts: facts.torch_version, FileGap.OTHER_TORCH, "torch {}", result)
    parts = _majority(parts, lambda facts: facts.world_size, FileGap.OTHER_JOB, "{} ranks", result)
    parts = _deduplicated(parts, result)
    known = {part.facts.rank for part in parts} | {gap.rank for gap in result}
    sizes = [part.facts.world_size for part in parts]
    wanted = range(min(max(sizes, default=0), _MAX_MISSING_RANKS))
    result += [
        RankGap(FileGap.MISSING, rank, "", "", f"the other ranks tell of {len(wanted)}")
        for rank in wanted
        if rank not in known
    ]
    return parts, sorted(result, key=_in_order)


def _with_known_rank(read: Sequence[RankSummary], result: list[RankGap]) -> list[RankSummary]:
    """Keep those that tell their rank, where there are several."""
    if len(read) < 2:
        return list(read)
    reason = "no rank in its distributedInfo, and it is in no folder rank_N"
    result += [
        RankGap(FileGap.NO_RANK, None, part.facts.host, part.facts.url, reason)
        for part in read
        if not part.facts.is_rank_known
    ]
    return [part for part in read if part.facts.is_rank_known]


def _majority(
    parts: Sequence[RankSummary],
    value_of: Callable[[RankFacts], Hashable],
    reason: FileGap,
    words: str,
    result: list[RankGap],
) -> list[RankSummary]:
    """Keep those that tell what most tell; of as many, what the lowest rank tells."""
    lowest = sorted(parts, key=lambda part: part.facts.rank)
    counts = Counter(value_of(part.facts) for part in lowest)
    if len(counts) < 2:
        return list(parts)
    (usual, count), *_ = counts.most_common(1)
    others = [part for part in parts if value_of(part.facts) != usual]
    result += [
        _gap(
            part.facts,
            reason,
            f"{words.format(value_of(part.facts) or 'not told')}, where {count} of {len(parts)} files "
            f"have {words.format(usual or 'not told')}",
        )
        for part in others
    ]
    return [part for part in parts if value_of(part.facts) == usual]


def _deduplicated(parts: Sequence[RankSummary], result: list[RankGap]) -> list[RankSummary]:
    """Keep one of each rank: of equal files the first, of others none, as nobody can choose."""
    by_rank: dict[int, list[RankSummary]] = {}
    for part in parts:
        by_rank.setdefault(part.facts.rank, []).append(part)
    kept = []
    for rank in sorted(by_rank):
        first, *others = sorted(by_rank[rank], key=lambda part: part.facts.url)
        are_equal = all(each.facts.digest == first.facts.digest for each in others)
        if are_equal:
            kept.append(first)
        reason_text = (
            f"the same content as {first.facts.url}, which stands"
            if are_equal
            else f"{1 + len(others)} files of it that differ, none of which stands"
        )
        result += [
            _gap(each.facts, FileGap.TWICE, reason_text)
            for each in (others if are_equal else (first, *others))
        ]
    return kept


def _gap(facts: RankFacts, reason: FileGap, result: str) -> RankGap:
    return RankGap(reason, facts.rank, facts.host, facts.url, result)


def _in_order(gap: RankGap) -> tuple[float, str]:
    return (float("inf") if gap.rank is None else gap.rank), gap.url
