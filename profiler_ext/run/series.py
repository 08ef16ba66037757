"""Owns the folders of a run that records again and again: a session each, and only the last ones.

Only what this run wrote is removed, and what an earlier one wrote under these names where
``--force`` was given.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from profiler_ext.errors import UsageError
from profiler_ext.exporters.formats import FILE_NAME

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
            folder: where their folders are.
            rank: the folder of this rank in each; empty where there is one rank.
            keep: how many are kept.
        """
        self.folders: list[Path] = []
        self.count = 0
        self._folder, self._rank, self._keep = folder, rank, keep

    def begin(self, *, force: bool) -> None:
        """Look whether others are there.

        Args:
            force: remove them.

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
