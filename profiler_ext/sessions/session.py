"""A recording and its attribution: loaded, saved, exported; nothing here needs torch.

``profiler-ext run`` writes a folder for each rank; torch's profiler writes a trace for each, side
by side, with the rank in the header (``distributedInfo``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from profiler_ext import attribution, findings
from profiler_ext.errors import CoverageError, ProfilerExtError, TraceError, UsageError
from profiler_ext.exporters.formats import FILE_NAME, Format, Roots, format_of
from profiler_ext.exporters.table_kinds import table_by, table_named
from profiler_ext.exporters.views.inside import inside_of, write_inside
from profiler_ext.isolation.failures import failure_detail, is_raised_by_program
from profiler_ext.kineto.distributed import is_rank_known, with_rank
from profiler_ext.kineto.names import WORK_CATEGORIES, is_clock_mark
from profiler_ext.kineto.recording import read_recording, without_source, write_recording
from profiler_ext.kineto.source import is_folder, listed, looks_like_trace, shown
from profiler_ext.memory import file as memory_file
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import flag_rows
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.provenance import Gap
from profiler_ext.records.recording import Recording
from profiler_ext.sessions.session_tables import SessionExplanations

if TYPE_CHECKING:
    from profiler_ext.exporters.tables import Filters, Table


_TRACE = re.compile(r".+\.pt\.trace\.json(\.gz)?")
_JSON = re.compile(r".+\.json(\.gz)?")
_RANK_FOLDER = re.compile(r"rank_(\d{1,9})", re.ASCII)
_MAX_LISTED = 3


def plain_traces(folder: Path) -> list[Path]:
    """Return the traces in a folder that torch's profiler wrote, by name."""
    # Names as of tensorboard_trace_handler; without any, each JSON file that begins as a trace.
    files = [each for each in listed(folder) if each.is_file()] if is_folder(folder) else []
    named = [each for each in files if _TRACE.fullmatch(each.name)]
    return named or [
        each for each in files if _JSON.fullmatch(each.name) and looks_like_trace(each)
    ]


class Session(SessionExplanations):
    """One profiled window: its trace, its compiled graphs, and where the time went.

    Attributes:
        recording: what was recorded.
        roots: folders from which source may be shown, besides the working folder and the
            interpreter's library.
    """

    def __init__(
        self,
        recording: Recording,
        on_analysis: Callable[[Analysis], None] | None = None,
        roots: Roots = (),
    ) -> None:
        """Make a session of a recording; attribution runs when it is first needed.

        Args:
            recording: what was recorded.
            on_analysis: called once with the analysis.
            roots: folders from which source may be shown; the recording itself cannot add any.
        """
        self.recording = recording
        self.roots = tuple(roots)
        self._on_analysis = on_analysis

    @cached_property
    def analysis(self) -> Analysis:
        """All that attribution found."""
        analysis = attribution.attribute(self.recording)
        if self._on_analysis is not None:
            self._on_analysis(analysis)
        return analysis

    @property
    def analyses(self) -> tuple[Analysis, ...]:
        """What attribution found, as of a session of one rank."""
        return (self.analysis,)

    @cached_property
    def recommendations(self) -> findings.Findings:
        """Top recommendations, and which rules could not be judged."""
        return findings.find(self.analysis)

    @property
    def has_work(self) -> bool:
        """Tell whether the trace has an op, or device work."""
        events = self.recording.trace.events
        is_mark = flag_rows(events.name, is_clock_mark)  # of category op, though nothing ran
        return bool((events.category.where(*WORK_CATEGORIES) & ~is_mark).any())

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for a person: what is missing, and the remedy."""
        return self.analysis.notes

    def columns(self, name: str, *arguments: Any, **filters: Unpack[Filters]) -> Table:
        """Return a table by its name, as columns; see :meth:`SessionTables.table`.

        Args:
            name: the table's name.
            *arguments: arguments of that table besides filters.
            **filters: the step, rank, phase or scope.
        """
        return table_named(name).make(self.analysis, *arguments, **filters)

    def assert_coverage(
        self, fraction: float, level: str = "line", scope: str = "compiled"
    ) -> None:
        """Raise unless enough of the busy time is attributed.

        Args:
            fraction: the least part, 0 to 1.
            level: the required level: ``line`` or ``op``.
            scope: ``compiled``, ``eager`` or ``all``: which busy time counts.

        Raises:
            CoverageError: Less is attributed; the message gives the gaps.
        """
        from profiler_ext.exporters import tables

        reached = tables.fraction_at(self.analysis, level, scope)
        if reached < fraction:
            gaps = tables.coverage(self.analysis)
            raise CoverageError(
                f"{reached:.2%} of the {scope} device time is attributed to a {level}, "
                f"expected {fraction:.2%}:\n{gaps.to_pandas().to_string(index=False)}"
            )

    def report(
        self,
        by: str | None = None,
        top: int | None = 15,
        format: str = "text",
        width: int = 120,
        budget: int | None = None,
        depth: int | None = None,
        verbose: bool = False,
        **filters: Unpack[Filters],
    ) -> str:
        """Return a report as text; see ``profiler-ext report``.

        Args:
            by: one table: ``line``, ``module``, ``op``, ``kernel``, ``phase``, ``link``,
                ``mechanism``; ``None`` for the first screen.
            top: number of rows; ``None`` for all.
            format: ``text``, ``csv``, ``json`` or ``md``.
            width: of lines of text, in characters.
            budget: most bytes of ``json``, about; ``None`` for no bound.
            depth: of modules in text; ``None`` for what fits.
            verbose: all of the text report, not its first screen.
            **filters: the step, rank, phase or scope.
        """
        from profiler_ext.exporters.terminal import report

        if format == "json":
            return self._report_json(by or "line", top, budget, **filters)
        return report.report(self, by, top, format, width, depth, verbose, **filters)

    def _report_json(
        self, by: str, top: int | None, budget: int | None, **filters: Unpack[Filters]
    ) -> str:
        from profiler_ext.exporters.json_output import answers, bounds

        answer = answers.table_answer(self, table_by(by), top, **filters)
        return bounds.answer_text(answer, budget)

    def annotate(self, *files: str, format: str = "text", width: int = 120) -> str:
        """Return source with its time in the margin; see ``profiler-ext annotate``.

        Args:
            *files: names or ends of paths; by default every file that took time.
            format: ``text`` or ``json``.
            width: of lines of text, in characters.
        """
        from profiler_ext.exporters import sources
        from profiler_ext.exporters.terminal import annotate

        texts = sources.local_sources([self.analysis], self.roots)
        return annotate.annotate([self.analysis], texts, files, format, width)

    def _repr_html_(self) -> str:
        from profiler_ext.exporters import notebook

        return notebook.session_html([self.analysis])

    def export(self, path: str | Path) -> Path:
        """Write the session in the format that the path's suffix names; return what was written.

        Args:
            path: ``.pftrace`` (Perfetto), ``.json`` or ``.json.gz`` (Chrome, loads back),
                ``.html``, ``.parquet`` or ``.csv`` (a folder of tables); without a suffix a
                TensorBoard log folder.

        Raises:
            UsageError: The suffix names no format.
            OutputError: It cannot be written.
        """
        return self.export_as(format_of(path), Path(path))

    def export_as(self, format: Format, path: Path) -> Path:
        """Write the session in a format; return what was written.

        Args:
            format: the format.
            path: the file, or the folder of formats that are one.
        """
        return format.write(self.analysis, path, self.roots)

    def without_source(self) -> Session:
        """Return the session without any text of source, for somebody who may not see it."""
        return Session(without_source(self.recording), roots=self.roots)

    def with_recording(self, recording: Recording) -> Session:
        """Return a session of another recording, with the same callback and roots."""
        return Session(recording, self._on_analysis, self.roots)

    def save(self, folder: str | Path) -> Path:
        """Write the recording into a folder, for :func:`load`; return the file.

        Where attribution fails, the recording is written with a gap that says so, and attributed
        again on load.

        Args:
            folder: the folder; it is made if missing.

        Raises:
            OutputError: It cannot be written.
        """
        path = Path(folder) / FILE_NAME
        memory_file.write(memory_file.path_next_to(path), self.recording.memory)
        write_inside(path.parent, self.recording.measured)
        try:
            return self.export(path)
        except ProfilerExtError:
            raise
        except Exception as error:
            if is_raised_by_program(error):
                raise
            gap = Gap(GapReason.ATTRIBUTION_FAILED, failure_detail(error))
            kept = replace(self.recording, gaps=(*self.recording.gaps, gap))
            write_recording(path, kept)
            return path


def _remedy(place: Path) -> str:
    """Say which folder to load; of repeated recordings, one of the sessions."""
    folders = sorted(each.name for each in place.glob("step_*") if is_folder(each))
    if not folders:
        return "give a folder that `profiler-ext run` wrote"
    return f"give the folder of one of its sessions, {shown(place / folders[-1])}"


def file_in(folder: Path) -> Path:
    """Return a folder's session file, or its only trace.

    Raises:
        TraceError: It holds no session and no trace, or several traces.
    """
    if (folder / FILE_NAME).is_file():
        return folder / FILE_NAME
    if len(traces := plain_traces(folder)) == 1:
        return traces[0]
    if traces:
        raise TraceError(
            f"{shown(folder)} holds {len(traces)} traces, {shown(traces[0].name)} and others; "
            "give one of them"
        )
    raise TraceError(f"{shown(folder)} holds no {FILE_NAME}; {_remedy(folder)}, or a trace file")


def load(path: str | Path, roots: Roots = (), jobs: int | None = 1) -> Session:
    """Read a session without importing torch.

    Args:
        path: a folder that ``profiler-ext run`` wrote, or a trace file.
        roots: folders from which source may be shown, besides the working folder and the
            interpreter's library.
        jobs: most processes that read a long file; ``None`` for one a core.

    Raises:
        TraceError: There is no readable trace.
    """
    place = Path(path)
    if is_folder(place):
        place = file_in(place)
    recording = read_recording(place, jobs)
    memory = memory_file.read(memory_file.path_next_to(place), recording.trace.base_ns)
    recording = replace(recording, memory=memory)
    if place.name == FILE_NAME and (inside := inside_of(place)) is not None:
        recording = replace(recording, measured=tuple(inside.kernels))
    return Session(recording, roots=roots)


def rank_folders(folder: Path) -> list[Path]:
    """Return the folders of ranks in a folder, by rank."""
    if not is_folder(folder):
        return []
    folders = {int(m[1]): p for p in listed(folder) if (m := _RANK_FOLDER.fullmatch(p.name))}
    return [folders[rank] for rank in sorted(folders)]


def rank_files(place: Path) -> list[Path]:
    """Return each rank's folder or trace; none where the folder is a session itself."""
    if not is_folder(place) or (place / FILE_NAME).is_file():
        return []
    return rank_folders(place) or plain_traces(place)


def load_ranks(places: Sequence[Path], roots: Roots = (), jobs: int | None = 1) -> list[Session]:
    """Read the sessions of several ranks.

    Args:
        places: a folder or trace of each; ``rank_N`` is of rank N where its trace has no rank.

    Raises:
        TraceError: There is no readable trace.
        UsageError: The rank of one is not known, or two are of one rank.
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
            f"the rank of {_listed(unknown)} is not known: no rank is in its "
            "distributedInfo, which "
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
