"""Owns which frame of a stack is the model's line, and which is the user's own."""

from __future__ import annotations

import dataclasses
from pathlib import PurePath

from profiler_ext.records import Frame, Place, Settings, is_cell

_NOT_THE_MODEL = frozenset({"torch", "triton", "profiler_ext"})
_PACKAGE_FOLDERS = frozenset({"site-packages", "dist-packages"})


class SourceRoots:
    """Knows which files are the user's and which belong to torch, triton or this package."""

    def __init__(self, settings: Settings) -> None:
        self._user = tuple(PurePath(root).parts for root in settings.user_roots)
        self._library = tuple(PurePath(root).parts for root in settings.library_roots)
        self._packages: dict[str, tuple[str, ...] | None] = {}
        self._users: dict[str, bool] = {}

    def model_frame(self, stack: tuple[Frame, ...]) -> Frame | None:
        """Return the innermost frame that is outside torch, triton and this package.

        Where all frames lie inside (a compiled ``optimizer.step``, a compiled module of
        ``torch.nn``), torch's own code is what the user compiled: then torch's innermost.
        """
        inwards = tuple(reversed(stack))
        outside = (frame for frame in inwards if self._is_model(frame.file))
        torchs = (frame for frame in inwards if self._is_torch(frame.file))
        return next(outside, None) or next(torchs, None)

    def user_frame(self, stack: tuple[Frame, ...]) -> Frame | None:
        """Return the innermost frame under the user's own roots."""
        return next((f for f in reversed(stack) if self._is_user(f.file)), None)

    def with_line(self, place: Place, stack: tuple[Frame, ...]) -> Place:
        """Return a place with the model's line and the user's own, as far as a stack has them.

        Args:
            place: the place.
            stack: the frames that lead to it, outermost first; none where no line is its own.
        """
        frame, user = self.model_frame(stack), self.user_frame(stack)
        return dataclasses.replace(
            place,
            file=frame.file if frame else None,
            line=frame.line if frame else None,
            function=frame.function if frame else None,
            code=frame.code if frame else None,
            user_file=user.file if user else None,
            user_line=user.line if user else None,
        )

    def _is_model(self, file: str) -> bool:
        package = self._package(file)
        return not file.startswith("<") and (not package or package[0] not in _NOT_THE_MODEL)

    def _is_torch(self, file: str) -> bool:
        return (self._package(file) or ())[:1] == ("torch",)

    def _is_user(self, file: str) -> bool:
        if file not in self._users:
            parts = PurePath(file).parts
            is_under = any(_under(parts, root) for root in self._user)
            self._users[file] = is_cell(file) or (self._package(file) is None and is_under)
        return self._users[file]

    def _package(self, file: str) -> tuple[str, ...] | None:
        """Return a library file's path below its library root; ``None`` outside of all."""
        if file not in self._packages:
            self._packages[file] = self._find_package(PurePath(file).parts)
        return self._packages[file]

    def _find_package(self, parts: tuple[str, ...]) -> tuple[str, ...] | None:
        folders = [at + 1 for at, part in enumerate(parts) if part in _PACKAGE_FOLDERS]
        roots = [_above_package(root) for root in self._library if _under(parts, root)]
        deepest = max(folders + roots, default=None)
        return None if deepest is None else parts[deepest:]


def _above_package(root: tuple[str, ...]) -> int:
    """Return how deep lie the packages of a library's root; torch's sources are one themselves."""
    return len(root) - (not _NOT_THE_MODEL.isdisjoint(root[-1:]))


def _under(parts: tuple[str, ...], root: tuple[str, ...]) -> bool:
    return len(parts) > len(root) and parts[: len(root)] == root
