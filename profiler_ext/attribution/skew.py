"""Owns who waited for whom among ranks whose analyses are in one process, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from profiler_ext.attribution.collectives import collectives_of
from profiler_ext.attribution.doing import doing_of
from profiler_ext.attribution.lateness import Answers, Questions, answers, with_reasons
from profiler_ext.attribution.meetings import Meetings, Waited
from profiler_ext.records import Analysis, MaskedInts, RankCollectives


def with_skew(analyses: Sequence[Analysis]) -> tuple[Analysis, ...]:
    """Return the analyses with who waited for whom in each collective.

    Args:
        analyses: one for each rank, on clocks laid over each other.

    Returns:
        As many; of collectives of which not all ranks are there, nothing is known.
    """

    def ask(questions: Questions) -> Mapping[int, Answers]:
        return {rank: answers(doing_of(analyses[rank]), own) for rank, own in questions.items()}

    ranks = [collectives_of(analysis) for analysis in analyses]
    meetings = Meetings(ranks, max(each.recording.settings.world_size for each in analyses))
    reasons = with_reasons(len(ranks), list(meetings.waits()), ask)
    return tuple(
        replace(_told(analysis, own, meetings.waited(rank)), lateness=reasons[rank])
        for rank, (analysis, own) in enumerate(zip(analyses, ranks, strict=True))
    )


def _told(analysis: Analysis, own: RankCollectives, waited: Waited) -> Analysis:
    found = analysis.communication
    rows = np.searchsorted(found.launch, own.launch)
    waiting, late = _masked(len(found)), _masked(len(found))
    waiting[rows], late[rows] = waited.waiting_ns, waited.late_ns
    return replace(analysis, communication=replace(found, waiting_ns=waiting, late_ns=late))


def _masked(count: int) -> MaskedInts:
    return np.ma.MaskedArray(np.zeros(count, dtype=np.int64), mask=np.ones(count, dtype=np.bool_))
