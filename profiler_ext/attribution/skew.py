"""Owns who waited for whom among ranks whose analyses are in one process, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from profiler_ext.attribution.collectives import collectives_of
from profiler_ext.attribution.doing import device_timeline
from profiler_ext.attribution.lateness import TimeReply, Queries, time_reply, rank_delays
from profiler_ext.attribution.meetings import MatchedCollectives, Waited
from profiler_ext.records import Analysis, MaskedInts, RankCollectives


def with_skew(analyses: Sequence[Analysis]) -> tuple[Analysis, ...]:
    """Return the analyses with who waited for whom in each collective.

    Args:
        analyses: one for each rank, on clocks laid over each other.

    Returns:
        As many; of collectives of which not all ranks are there, nothing is known.
    """

    def query_ranks(queries_by_rank: Queries) -> Mapping[int, TimeReply]:
        return {rank: time_reply(device_timeline(analyses[rank]), own) for rank, own in queries_by_rank.items()}

    ranks = [collectives_of(analysis) for analysis in analyses]
    matched_collectives = MatchedCollectives(ranks, max(each.recording.settings.world_size for each in analyses))
    reasons = rank_delays(len(ranks), list(matched_collectives.waits()), query_ranks)
    return tuple(
        replace(_with_waits(analysis, own, matched_collectives.waited(rank)), rank_delay=reasons[rank])
        for rank, (analysis, own) in enumerate(zip(analyses, ranks, strict=True))
    )


def _with_waits(analysis: Analysis, own: RankCollectives, waited: Waited) -> Analysis:
    launch_communication = analysis.communication
    rows = np.searchsorted(launch_communication.launch, own.launch)
    waiting, late = _masked(len(launch_communication)), _masked(len(launch_communication))
    waiting[rows], late[rows] = waited.waiting_ns, waited.late_ns
    return replace(analysis, communication=replace(launch_communication, waiting_ns=waiting, late_ns=late))


def _masked(count: int) -> MaskedInts:
    return np.ma.MaskedArray(np.zeros(count, dtype=np.int64), mask=np.ones(count, dtype=np.bool_))
