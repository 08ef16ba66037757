"""Restricts the server to sessions below the folders that it was started with.

Paths, and all files of a session, are resolved with their links before they are opened; what is
outside of the folders is refused as if it did not exist.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from profiler_ext.errors import UsageError
from profiler_ext.exporters.formats import FILE_NAME
from profiler_ext.exporters.json_output.documents import TryAnswer
from profiler_ext.exporters.views.trials import FILE_NAME as TRIAL_NAME
from profiler_ext.exporters.views.trials import trial_of
from profiler_ext.sessions.merging import MergedSession, load
from profiler_ext.sessions.session import Session, rank_folders

_MAX_CACHED = 4
_MAX_LISTED = 500
_MAX_VISITED = 20_000
_Stamp = tuple[tuple[str, int, int], ...]
AnySession = Session | MergedSession


@dataclass(slots=True)
class Folders:
    """The folders that may be read, links resolved, and the sessions read last."""

    roots: tuple[Path, ...]
    may_run: bool = False  # agents may have a program of theirs run
    _cache: OrderedDict[_Stamp, AnySession] = field(default_factory=OrderedDict)

    @classmethod
    def of(cls, paths: Iterable[Path], *, may_run: bool = False) -> Folders:
        """Return the folders that a user named; each must exist."""
        return cls(tuple(_folder(path) for path in paths), may_run)

    def session(self, name: str) -> AnySession:
        """Return a session; an unchanged one is read once; raises UsageError or TraceError."""
        place = self._place(name)
        files = self._files(place)
        if files is None:
            raise self._no_session_error(name)
        stamp = tuple(_stamp(file) for file in files)
        if stamp not in self._cache:
            self._cache[stamp] = load(place)
        self._cache.move_to_end(stamp)
        while len(self._cache) > _MAX_CACHED:
            self._cache.popitem(last=False)
        return self._cache[stamp]

    def trial(self, name: str) -> TryAnswer | None:
        """Return what was tried since a session was recorded."""
        place = self._place(name)
        kept = _resolved((place if place.is_dir() else place.parent) / TRIAL_NAME)
        return trial_of(place) if kept is not None and self._contains(kept) else None

    def folder(self, name: str) -> Path:
        """Return a folder to run a program in; raises UsageError if it is not to be read."""
        place = self._place(name)
        if not place.is_dir():
            raise UsageError(f"{name!r} is no folder")
        return place

    def sessions(self) -> tuple[list[str], bool]:
        """Return the sessions' paths, and whether there may be more; ranks' folders are one."""
        listed: list[str] = []
        for looked_at, place in enumerate(self._below()):
            if looked_at >= _MAX_VISITED or len(listed) >= _MAX_LISTED:
                return sorted(listed), True
            if self._files(place) and not (
                place in rank_folders(place.parent) and not (place.parent / FILE_NAME).is_file()
            ):
                listed.append(self._display_path(place))
        return sorted(listed), False

    def _below(self) -> Iterator[Path]:
        for root in self.roots:
            for folder, inner, _ in os.walk(root):
                inner[:] = sorted(name for name in inner if not name.startswith("."))
                yield Path(folder)

    def _display_path(self, place: Path) -> str:
        """Return the name of a session: relative to its root, else the full path."""
        if len(self.roots) > 1:
            return str(place)
        return str(place.relative_to(self.roots[0]))

    def _place(self, name: str) -> Path:
        for root in self.roots:
            resolved = _resolved(root / name)
            if resolved is not None and self._contains(resolved):
                return resolved
        raise self._no_session_error(name)

    def _files(self, place: Path) -> list[Path] | None:
        folders = [place] if (place / FILE_NAME).is_file() else rank_folders(place) or [place]
        parts = [place] if place.is_file() else [each / FILE_NAME for each in folders]
        resolved = [file for part in parts if (file := _resolved(part)) and self._contains(file)]
        return resolved if len(resolved) == len(parts) else None

    def _contains(self, resolved: Path) -> bool:
        return any(resolved.is_relative_to(root) for root in self.roots)

    def _no_session_error(self, name: str) -> UsageError:
        listed = ", ".join(map(str, self.roots))
        return UsageError(
            f"there is no session {name!r} below {listed}; list_sessions tells which there are"
        )


def _folder(path: Path) -> Path:
    resolved = _resolved(path)
    if resolved is None or not resolved.is_dir():
        raise UsageError(f"{path} is no folder; name the folders that may be read")
    return resolved


def _resolved(path: Path) -> Path | None:
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        return None


def _stamp(file: Path) -> tuple[str, int, int]:
    status = file.stat()
    return str(file), status.st_mtime_ns, status.st_size
