"""Checks that a session can be written into a folder, before the program begins."""

from __future__ import annotations

import os
from pathlib import Path

from profiler_ext.errors import OutputError, UsageError
from profiler_ext.exporters.formats import FILE_NAME


def rank_folder() -> str:
    """Return the name of this rank's folder; there is none where there is one rank."""
    ranked = os.environ.get("WORLD_SIZE", "1") not in ("", "0", "1")
    return f"rank_{os.environ.get('RANK', '0')}" if ranked else ""


def check_folder(
    folder: Path, *, force: bool, replace: str = "add --force", other: str = "with -o"
) -> None:
    """Make the folder of a session; raises UsageError or OutputError."""
    if (folder / FILE_NAME).exists() and not force:
        raise UsageError(f"{folder} holds a session; choose another folder, or {replace}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise OutputError(f"{folder} is not a folder; choose another {other}") from None
    except OSError as error:
        raise OutputError(
            f"cannot make {folder}: {error.strerror}; choose another {other}"
        ) from None
    if not os.access(folder, os.W_OK):
        raise OutputError(f"cannot write into {folder}; choose another {other}")
