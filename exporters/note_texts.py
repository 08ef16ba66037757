"""Owns how notes of attribution read where several ranks are shown: of which ranks each is."""

from __future__ import annotations

from collections.abc import Sequence

from profiler_ext.printable import printable
from profiler_ext.records import Analysis

_MAX_RANKS_LISTED = 8


def note_texts(analyses: Sequence[Analysis]) -> list[str]:
    """Return what attribution has to say to a person, each note once.

    Args:
        analyses: one for each rank.
    """
    ranks: dict[str, list[int]] = {}
    for analysis in analyses:
        for note in analysis.notes:
            ranks.setdefault(note, []).append(analysis.recording.settings.rank)
    several = len(analyses) > 1
    lines = (f"{_ranks_text(of)}: {note}" if several else note for note, of in ranks.items())
    return list(map(printable, lines))


def _ranks_text(ranks: Sequence[int]) -> str:
    if len(ranks) > _MAX_RANKS_LISTED:
        return f"{len(ranks)} ranks, the first {ranks[0]}"
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
