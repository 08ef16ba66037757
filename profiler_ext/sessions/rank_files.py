"""Owns which files of a folder are of the ranks of one job, and of which rank each is.

``profiler-ext run`` writes a folder for each rank; torch's own profiler writes a trace for each,
whose header has the rank (``distributedInfo``), side by side.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from profiler_ext.errors import UsageError
from profiler_ext.exporters.formats import FILE_NAME, Roots
from profiler_ext.kineto.distributed import is_rank_known, with_rank
from profiler_ext.kineto.source import is_folder, listed, shown
from profiler_ext.sessions.plain_traces import plain_traces
from profiler_ext.sessions.session import Session, load

_RANK_FOLDER = re.compile(r"rank_(\d{1,9})", re.ASCII)
_MAX_LISTED = 3


def rank_folders(folder: Path) -> list[Path]:
    """Return the folders of ranks in a folder, by rank."""
    if not is_folder(folder):
        return []
    folders = {int(m[1]): p for p in listed(folder) if (m := _RANK_FOLDER.fullmatch(p.name))}
    return [folders[rank] for rank in sorted(folders)]


def rank_files(place: Path) -> list[Path]:
    """Return what is of the ranks of a job in a folder: a folder of each rank, or a trace.

    Args:
        place: a path.

    Returns:
        The folders or traces; none where it holds a session itself, or nothing of ranks.
    """
    if not is_folder(place) or (place / FILE_NAME).is_file():
        return []
    return rank_folders(place) or plain_traces(place)


def load_ranks(places: Sequence[Path], roots: Roots = (), jobs: int | None = 1) -> list[Session]:
    """Read the sessions of several ranks.

    Args:
        places: a folder or trace of each; what a folder ``rank_N`` holds is of rank N where its
            trace tells none.
        roots: folders from which source may be shown.
        jobs: so many processes read a long file at most.

    Raises:
        TraceError: There is no readable trace.
        UsageError: Of one it is not known of which rank it is, or two are of one rank.
    """
    sessions = [_of_folder(place, load(place, roots, jobs)) for place in places]
    if len(sessions) > 1:
        _require_ranks(places, sessions)
    return sessions


def _of_folder(place: Path, session: Session) -> Session:
    named = _RANK_FOLDER.fullmatch(place.name)
    if named is None or is_rank_known(session.recording):
        return session
    return Session(with_rank(session.recording, otherwise=int(named[1])), roots=session.roots)


def _require_ranks(places: Sequence[Path], sessions: Sequence[Session]) -> None:
    unknown = [
        place
        for place, session in zip(places, sessions, strict=True)
        if not (is_rank_known(session.recording) or _RANK_FOLDER.fullmatch(place.name))
    ]
    if unknown:
        raise UsageError(
            f"the rank of {_listed(unknown)} is not known: no rank is in its distributedInfo, which "
            "torch.profiler writes where torch.distributed is initialised; give one trace alone, "
            "or put each into a folder rank_N"
        )
    of_rank: dict[int, list[Path]] = {}
    for place, session in zip(places, sessions, strict=True):
        of_rank.setdefault(session.recording.settings.rank, []).append(place)
    for rank, own in sorted(of_rank.items()):
        if len(own) > 1:
            count = "two" if len(own) == 2 else f"{len(own)}"
            raise UsageError(
                f"{count} sessions are of rank {rank}: {_listed(own)}; give one of each rank"
            )


def _listed(places: Sequence[Path]) -> str:
    first = ", ".join(map(shown, places[:_MAX_LISTED]))
    more = len(places) - _MAX_LISTED
    return f"{first} and {more} more" if more > 0 else first
