"""Writes the files of a session's folder."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from profiler_ext.errors import InternalError, OutputError, ProfilerExtError
from profiler_ext.exporters.formats import SESSION, Format, run_outputs
from profiler_ext.file_io import candidate_folders
from profiler_ext.isolation.failures import failure_detail, is_raised_by_program
from profiler_ext.sessions.session import Session

REMEDY = "`profiler-ext export` writes the rest from it"


def write_outputs(session: Session, folder: Path, *, keep: bool = True) -> None:
    """Write a session in each format of ``run``, even if one fails.

    Raises:
        OutputError: Something cannot be written; the message says where the session is.
        InternalError: Something in this package failed; the session is in the folder.
    """
    # keep: where the folder cannot be written, save in the temporary or working folder
    save(session, folder, keep=keep)  # first: from it all else can be made again
    write_exports(session, folder)


def save(session: Session, folder: Path, *, keep: bool = True) -> None:
    """Write the session itself; ``keep`` as in :func:`write_outputs`; raises OutputError."""
    try:
        session.save(folder)
    except OutputError as error:
        raise OutputError(f"{error}; {_save_elsewhere(session)}" if keep else str(error)) from error


def write_exports(session: Session, folder: Path) -> None:
    """Write the exports of a saved session; raises OutputError or InternalError."""
    tried = [_failure(session, each, folder) for each in run_outputs() if each is not SESSION]
    if failed := [error for error in tried if error is not None]:
        is_fault = any(isinstance(error, InternalError) for error in failed)
        message = f"{'; '.join(map(str, failed))}; the session itself is in {folder}: {REMEDY}"
        raise (InternalError if is_fault else OutputError)(message)


def _failure(session: Session, format: Format, folder: Path) -> ProfilerExtError | None:
    path = format.place_in(folder)
    try:
        session.export_as(format, path)
    except OutputError as error:
        return error
    except Exception as error:
        if is_raised_by_program(error):
            raise
        return InternalError(f"{path.name} could not be made ({failure_detail(error)})")
    return None


def _save_elsewhere(session: Session) -> str:
    """Save a session, which cannot be recorded again, in the temporary or the working folder."""
    for place in candidate_folders():
        with suppress(OSError, OutputError):
            return f"what was recorded is in {_saved_in(place, session)} instead"
    return "no temporary folder can be written either, so what was recorded is lost"


def _saved_in(place: Path, session: Session) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="profiler_ext-session-", dir=place))
    try:
        session.save(folder)
    except OutputError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder
