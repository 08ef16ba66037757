"""The outcome of a run: its exit code, and the sessions that are kept."""

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

    Only what this run wrote is removed, and with ``--force`` what an earlier one wrote under these
    names.
    """

    def __init__(self, folder: Path, rank: str, keep: int) -> None:
        self.folders: list[Path] = []  # ranks have folders of their own in them
        self.count = 0  # of all written, removed ones too
        self._folder, self._rank, self._keep = folder, rank, keep

    def begin(self, *, force: bool) -> None:
        """Check that there are no other sessions, or remove them.

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
        """Return the folder of a session that begins with a step."""
        return self._folder / f"step_{step:06}" / self._rank

    def keep(self, step: int) -> None:
        """Count a written session, and remove the oldest beyond the limit."""
        self.count += 1
        self.folders.append(self._folder / f"step_{step:06}")
        while len(self.folders) > self._keep:
            self._remove(self.folders.pop(0))

    def _remove(self, folder: Path) -> None:
        """Remove a session, and its folder if that is empty."""
        (folder / self._rank / FILE_NAME).unlink(missing_ok=True)
        for each in (folder / self._rank, folder):
            with suppress(OSError):
                each.rmdir()


NEVER_STEPPED = 3
NOT_KEPT = 2


@dataclass(slots=True)
class SavedSessions:
    """The sessions of this rank."""

    folder: Path
    series: Series | None = None  # with repeated recordings
    is_saved: bool = False  # one was, perhaps without all its exports

    def folder_of_step(self, step: int) -> Path:
        """Return the folder of a session that begins with a step."""
        return self.folder if self.series is None else self.series.folder_of_step(step)

    def kept_text(self, recorder: Recorder) -> str:
        """Return what there is after an early end, in words."""
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
    """The outcome of a run."""

    ending: ExitStatus
    session: Session | None  # the last one that was recorded and written
    kept: SavedSessions
    remarks: tuple[str, ...]


def outcome_of(
    ending: ExitStatus,
    request: Request,
    recorder: Recorder | None,
    kept: SavedSessions,
    start_error: Exception | None,
) -> Outcome:
    """Return the outcome of a run."""
    if recorder is None:
        return _unrecorded(ending, kept, start_error)
    failed, steps = failure_lines(recorder), recorder.ends.count
    if ending.code == 0 and failed:
        code = 0 if _is_internal_error(recorder.failure) else NOT_KEPT
        return Outcome(_ending(code), None, kept, failed)
    if ending.code:
        message = remarks.failed_script(ending.code, kept.kept_text(recorder), steps)
        return Outcome(ending, recorder.session, kept, (message, *failed))
    is_whole = recorder.session is not None and request.skip.is_nothing
    code = 0 if steps or is_whole else NEVER_STEPPED
    return Outcome(
        _ending(code), recorder.session, kept, remarks.success_remarks(request, recorder)
    )


def _unrecorded(ending: ExitStatus, kept: SavedSessions, start_error: Exception | None) -> Outcome:
    """Return the outcome of a run in which nothing could be recorded; the reason was shown."""
    if ending.code:
        message = remarks.failed_script(ending.code, remarks.NOTHING, 0)
        return Outcome(ending, None, kept, (message,))
    if start_error is not None:
        code = 0 if _is_internal_error(start_error) else NOT_KEPT
        return Outcome(_ending(code), None, kept, ())
    return Outcome(_ending(NEVER_STEPPED), None, kept, (remarks.NO_TORCH,))


def _ending(code: int) -> ExitStatus:
    """Return the exit status of a successful script."""
    # With several ranks 0: torchrun ends all others when one fails, perhaps at a checkpoint.
    return ExitStatus(0 if rank_folder() else code)


def failure_lines(recorder: Recorder) -> tuple[str, ...]:
    """Return what went wrong in recording or keeping, if anything did."""
    if recorder.failure is not None:
        return error_lines(recorder.failure, recorder.trace)
    return () if recorder.lost is None else (remarks.internal_error(recorder.lost, recorder.trace),)


def error_lines(error: Exception, trace: Path | None = None) -> tuple[str, ...]:
    """Return an error in words; ``trace`` is torch's own, if it is kept instead."""
    is_own_error = isinstance(error, ProfilerExtError)
    return (str(error) if is_own_error else remarks.internal_error(failure_detail(error), trace),)


def _is_internal_error(error: Exception | None) -> bool:
    return isinstance(error, InternalError) or not isinstance(error, ProfilerExtError)
