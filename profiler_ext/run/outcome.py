"""How a run went: its exit code, and the sessions that are kept of it.

Only what this run wrote is removed, and what an earlier one wrote under these names where
``--force`` was given.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_ext.errors import InternalError, ProfilerExtError, UsageError
from profiler_ext.exporters.formats import FILE_NAME
from profiler_ext.isolation.failures import failure_detail
from profiler_ext.run import remarks
from profiler_ext.run.program import ExitStatus
from profiler_ext.run.request import Request
from profiler_ext.sessions.folder import rank_folder

if TYPE_CHECKING:
    from profiler_ext.run.recorder import Recorder
    from profiler_ext.sessions.session import Session


_NAME = re.compile(r"step_\d{6,}")


class Series:
    """The sessions that a run has kept so far.

    Attributes:
        folders: where they are, the last one last; ranks have folders of their own in them.
        count: how many were written, those that are gone too.
    """

    def __init__(self, folder: Path, rank: str, keep: int) -> None:
        """Keep none yet.

        Args:
            rank: the folder of this rank in each; empty where there is one rank.
        """
        self.folders: list[Path] = []
        self.count = 0
        self._folder, self._rank, self._keep = folder, rank, keep

    def begin(self, *, force: bool) -> None:
        """Look whether others are there.

        Raises:
            UsageError: There are, and they may not be removed.
        """
        existing = self._existing_sessions()
        if existing and not force:
            raise UsageError(
                f"{self._folder} holds sessions, {existing[0].name} and others; choose another "
                "folder, or add --force"
            )
        for each in existing:
            self._remove(each)

    def _existing_sessions(self) -> list[Path]:
        result = sorted(self._folder.iterdir()) if self._folder.is_dir() else []
        named = (each for each in result if _NAME.fullmatch(each.name) and not each.is_symlink())
        return [each for each in named if (each / self._rank / FILE_NAME).is_file()]

    def folder_of_step(self, step: int) -> Path:
        """Return where a session is written that begins with a step."""
        return self._folder / f"step_{step:06}" / self._rank

    def keep(self, step: int) -> None:
        """Count a session that is written, and remove the oldest where they are too many."""
        self.count += 1
        self.folders.append(self._folder / f"step_{step:06}")
        while len(self.folders) > self._keep:
            self._remove(self.folders.pop(0))

    def _remove(self, folder: Path) -> None:
        """Remove a session; the folder goes where nothing else is in it."""
        (folder / self._rank / FILE_NAME).unlink(missing_ok=True)
        for each in (folder / self._rank, folder):
            with suppress(OSError):
                each.rmdir()


NEVER_STEPPED = 3
NOT_KEPT = 2


@dataclass(slots=True)
class SavedSessions:
    """Where the sessions of this rank are kept.

    Attributes:
        folder: of its session.
        series: of its sessions, where steps are recorded again and again.
        is_saved: a session was saved, though perhaps not all that is made of it.
    """

    folder: Path
    series: Series | None = None
    is_saved: bool = False

    def folder_of_step(self, step: int) -> Path:
        """Return the folder of a session that begins with a step."""
        return self.folder if self.series is None else self.series.folder_of_step(step)

    def words(self, recorder: Recorder) -> str:
        """Say what there is of an early end."""
        if recorder.session is not None:
            return remarks.KEPT
        if recorder.discarded:
            return remarks.not_slow(recorder.discarded)
        if not recorder.has_recorded:
            return remarks.NOTHING
        if failure_lines(recorder):
            return remarks.FAILED
        return remarks.only_saved(self.folder) if self.is_saved else remarks.CUT_SHORT


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run went.

    Attributes:
        ending: how the script ended, or how the run shall.
        session: what was recorded and written, the last one of several.
        kept: where.
        remarks: what to tell the user.
    """

    ending: ExitStatus
    session: Session | None
    kept: SavedSessions
    remarks: tuple[str, ...]


def outcome_of(
    ending: ExitStatus,
    request: Request,
    recorder: Recorder | None,
    kept: SavedSessions,
    start_error: Exception | None,
) -> Outcome:
    """Tell how a run went."""
    if recorder is None:
        return _unrecorded(ending, kept, start_error)
    failed, steps = failure_lines(recorder), recorder.ends.count
    if ending.code == 0 and failed:
        code = 0 if _is_internal_error(recorder.failure) else NOT_KEPT
        return Outcome(_ending(code), None, kept, failed)
    if ending.code:
        message = remarks.failed_script(ending.code, kept.words(recorder), steps)
        return Outcome(ending, recorder.session, kept, (message, *failed))
    is_whole = recorder.session is not None and request.skip.is_nothing
    code = 0 if steps or is_whole else NEVER_STEPPED
    return Outcome(
        _ending(code), recorder.session, kept, remarks.success_remarks(request, recorder)
    )


def _unrecorded(ending: ExitStatus, kept: SavedSessions, start_error: Exception | None) -> Outcome:
    """Tell how a run went in which nothing could be recorded; why was said at once."""
    if ending.code:
        message = remarks.failed_script(ending.code, remarks.NOTHING, 0)
        return Outcome(ending, None, kept, (message,))
    if start_error is not None:
        code = 0 if _is_internal_error(start_error) else NOT_KEPT
        return Outcome(_ending(code), None, kept, ())
    return Outcome(_ending(NEVER_STEPPED), None, kept, (remarks.NO_TORCH,))


def _ending(code: int) -> ExitStatus:
    """Return how the run of a script that did well ends.

    One rank of several ends well too: torchrun ends all others at once when one does not, and
    they may be at their last checkpoint.
    """
    return ExitStatus(0 if rank_folder() else code)


def failure_lines(recorder: Recorder) -> tuple[str, ...]:
    """Say what went wrong in recording or keeping, if anything did."""
    if recorder.failure is not None:
        return error_lines(recorder.failure, recorder.trace)
    return () if recorder.lost is None else (remarks.internal_error(recorder.lost, recorder.trace),)


def error_lines(error: Exception, trace: Path | None = None) -> tuple[str, ...]:
    """Say what was raised.

    Args:
        trace: torch's own trace of what was recorded, where that is kept instead.
    """
    is_told = isinstance(error, ProfilerExtError)
    return (str(error) if is_told else remarks.internal_error(failure_detail(error), trace),)


def _is_internal_error(error: Exception | None) -> bool:
    return isinstance(error, InternalError) or not isinstance(error, ProfilerExtError)
