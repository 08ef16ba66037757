"""A session of several ranks: their tables as one, on aligned clocks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from profiler_ext.attribution.clock_sync import Clock, align_clocks, with_clock_shift
from profiler_ext.attribution.collectives import collectives_of
from profiler_ext.attribution.matched_collectives import with_skew
from profiler_ext.attribution.one_step import of_step
from profiler_ext.errors import CoverageError, UsageError
from profiler_ext.exporters.formats import SESSION, Format, Roots, format_of
from profiler_ext.findings import Findings, find_on_ranks
from profiler_ext.records.analysis import Analysis
from profiler_ext.sessions.session import Session, load_ranks, rank_files
from profiler_ext.sessions.session import load as load_one
from profiler_ext.sessions.session_tables import SessionExplanations

if TYPE_CHECKING:
    from profiler_ext.exporters.tables import Filters, Table


class MergedSession(SessionExplanations):
    """Sessions of several ranks together; its tables are those of a session, with ``ranks``.

    Attributes:
        sessions: the sessions as they were recorded, by rank.
    """

    def __init__(self, sessions: Sequence[Session], clocks: Sequence[Clock] = ()) -> None:
        """Join one session of each rank.

        Args:
            sessions: the sessions.
            clocks: how their clocks are aligned, if known of more ranks; in order of rank.

        Raises:
            UsageError: There is none, or two are of one rank.
        """
        ranks = [session.recording.settings.rank for session in sessions]
        if not ranks:
            raise UsageError("there is no session to merge; give the folder of each rank")
        if twice := sorted({str(rank) for rank in ranks if ranks.count(rank) > 1}):
            raise UsageError(f"two sessions are of rank {', '.join(twice)}; give one of each rank")
        self.sessions = tuple(sorted(sessions, key=lambda s: s.recording.settings.rank))
        self._clocks = tuple(clocks)

    @property
    def roots(self) -> tuple[str | Path, ...]:
        """Folders from which source may be shown, of all sessions."""
        return tuple(dict.fromkeys(root for session in self.sessions for root in session.roots))

    @cached_property
    def clocks(self) -> tuple[Clock, ...]:
        """How the clock of each rank was set."""
        own = (collectives_of(session.analysis) for session in self.sessions)
        return self._clocks or align_clocks(list(own))

    @cached_property
    def analyses(self) -> tuple[Analysis, ...]:
        """What attribution found on each rank, on aligned clocks."""
        pairs = zip(self.sessions, self.clocks, strict=True)
        return with_skew(
            [with_clock_shift(session.analysis, clock.shift_ns) for session, clock in pairs]
        )

    @cached_property
    def recommendations(self) -> Findings:
        """Top recommendations on any rank, and which rules could not be judged."""
        return find_on_ranks(self.analyses)

    @property
    def notes(self) -> tuple[str, ...]:
        """How the clocks were set, and what is missing on each rank."""
        own = (
            f"rank {analysis.recording.settings.rank}: {note}"
            for analysis in self.analyses
            for note in analysis.notes
        )
        return (*_clock_notes(self.clocks), *own)

    def columns(self, name: str, *arguments: Any, **filters: Unpack[Filters]) -> Table:
        """Return a table by its name, as columns; see :meth:`SessionTables.table`.

        Args:
            name: the table's name.
            *arguments: arguments of that table besides filters.
            **filters: the step, rank, phase or scope.
        """
        from profiler_ext.exporters import tables

        base_ns = self.analyses[0].recording.trace.base_ns
        return tables.of_ranks(self.analyses, base_ns, name, *arguments, **filters)

    def of_rank(self, rank: int | None) -> tuple[Analysis, ...]:
        """Return the analysis of one rank, or all of them.

        Args:
            rank: the rank, ``None`` for all.

        Raises:
            UsageError: There is no such rank.
        """
        known = {each.recording.settings.rank: each for each in self.analyses}
        if rank is None:
            return self.analyses
        if rank not in known:
            listed = ", ".join(map(str, known))
            raise UsageError(f"there is no rank {rank}; ask for one of the ranks: {listed}")
        return (known[rank],)

    def annotate(
        self, *files: str, rank: int | None = None, format: str = "text", width: int = 120
    ) -> str:
        """Return source with the time of all ranks, or of one, in the margin.

        Args:
            *files: names or ends of paths; by default every file that took time.
            rank: the rank; by default the sum of all.
            format: ``text`` or ``json``.
            width: of lines of text, in characters.
        """
        from profiler_ext.exporters import sources
        from profiler_ext.exporters.terminal import annotate

        analyses = self.of_rank(rank)
        texts = sources.local_sources(analyses, self.roots)
        return annotate.annotate(analyses, texts, files, format, width)

    def fraction_at(self, level: str = "line", scope: str = "compiled") -> float:
        """Return the fraction of all ranks' busy time that is attributed at a level.

        Args:
            level: the required level: ``line``, ``op`` or ``none``.
            scope: ``compiled``, ``eager`` or ``all``: which busy time counts.
        """
        from profiler_ext.exporters import tables

        lines = (line for analysis in self.analyses for line in analysis.breakdown)
        return tables.fraction_of(lines, level, scope)

    def assert_coverage(
        self, fraction: float, level: str = "line", scope: str = "compiled"
    ) -> None:
        """Raise unless enough of the busy time of all ranks is attributed.

        Args:
            fraction: the least part of the busy time, from 0 to 1.
            level: the required level: ``line``, ``op`` or ``none``.
            scope: ``compiled``, ``eager`` or ``all``: which busy time counts.

        Raises:
            CoverageError: Less is attributed.
        """
        reached = self.fraction_at(level, scope)
        if reached < fraction:
            raise CoverageError(
                f"{reached:.2%} of the {scope} device time of all ranks is attributed to a {level}"
                f", expected {fraction:.2%}; see coverage()"
            )

    def _repr_html_(self) -> str:
        from profiler_ext.exporters import notebook

        return notebook.session_html(self.analyses)

    def export(self, path: str | Path) -> Path:
        """Write all ranks in the format that the path's suffix names; return what was written.

        Args:
            path: as in :meth:`Session.export`.

        Raises:
            UsageError: No format has the suffix, or the format holds one rank only.
            OutputError: It cannot be written.
        """
        return self.export_as(format_of(path), Path(path))

    def export_as(self, format: Format, path: Path) -> Path:
        """Write all ranks in a format; return what was written.

        Args:
            format: the format.
            path: the file, or the folder of formats that are one.

        Raises:
            UsageError: The format holds one rank only.
            OutputError: It cannot be written.
        """
        format.require_ranks()
        return format.write_ranks(self.analyses, path, self.roots)

    def without_source(self) -> MergedSession:
        """Return the sessions without any text of source."""
        return MergedSession([session.without_source() for session in self.sessions])

    def save(self, folder: str | Path) -> Path:
        """Write each rank's recording, on aligned clocks, into a folder of its own.

        Args:
            folder: the parent of ``rank_0`` and so on.

        Raises:
            OutputError: It cannot be written.
        """
        for analysis in self.analyses:
            own = Path(folder) / f"rank_{analysis.recording.settings.rank}"
            SESSION.write(analysis, SESSION.place_in(own))
        return Path(folder)


def merge(sessions: Sequence[Session]) -> MergedSession:
    """Join sessions of several ranks into one.

    Args:
        sessions: one of each rank.

    Raises:
        UsageError: There is none, or two are of one rank.
    """
    return MergedSession(sessions)


def load(path: str | Path, roots: Roots = (), jobs: int | None = 1) -> Session | MergedSession:
    """Read a session, or those of all ranks, without importing torch.

    Args:
        path: a folder that ``profiler-ext run`` wrote, a trace file, or a folder of traces.
        roots: folders from which source may be shown, besides the working folder and the
            interpreter's library; the recording itself cannot add any.
        jobs: most processes that read a long file; ``None`` for one a core.

    Returns:
        The session; for a folder of ranks the merged one.

    Raises:
        TraceError: There is no readable trace.
        UsageError: The rank of one of several is not known, or two are of one rank.
    """
    own, places = tuple(roots), rank_files(Path(path))
    if not places or (len(places) == 1 and places[0].is_file()):
        return load_one(places[0] if places else path, own, jobs)
    return merge(load_ranks(places, own, jobs))


def _clock_notes(clocks: Sequence[Clock]) -> tuple[str, ...]:
    first, *others = clocks
    notes = [
        f"the clock of rank {c.rank} was moved by {c.shift_ns:,} ns, so that {c.collectives} "
        "collectives end at one moment"
        for c in others
        if c.collectives
    ]
    if unset := ", ".join(str(c.rank) for c in others if not c.collectives):
        notes.append(
            f"ranks {first.rank} and {unset} are laid over each other by their wall clocks: their "
            "traces tell no collective (process group and number) that they share"
        )
    return tuple(notes)


def narrowed(
    session: Session | MergedSession, rank: int | None = None, step: int | None = None
) -> tuple[Analysis, ...]:
    """Return the analyses of one rank or all, of one step or all.

    Raises:
        UsageError: There is no such rank or step.
    """
    merged = session if isinstance(session, MergedSession) else MergedSession([session])
    chosen = merged.of_rank(rank)
    if step is None:
        return chosen
    having = [each for each in chosen if step in (one.number for one in each.steps)]
    if not having:
        analysis = chosen[0]
        from profiler_ext.exporters.tables.selection import Selection

        Selection(step=step).require_step(analysis)
    return tuple(of_step(each, step) for each in having)
