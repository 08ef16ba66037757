"""Owns what is kept of something of ours that failed: where, with what, and whose it was."""

from __future__ import annotations

import traceback
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def _no_object() -> None:
    return None


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong in an observation.

    Attributes:
        hook: what was observed, ``CompiledFxGraph.post_compile``.
        detail: the error and its place, in one line.
        scope: what may have lost something by it, a compile id; ``None`` outside any compile.
        subject: whose method was observed, while it lives.
        lost: what alone was lost by it; ``None`` where that may be all that the hook had to tell.
    """

    hook: str
    detail: str
    scope: str | None
    subject: Callable[[], Any] = _no_object
    lost: str | None = None

    def is_repeated_by(self, other: Failure, is_disabled: bool) -> bool:
        """Tell whether another one loses nothing more: the same, in the same compile.

        Args:
            other: the later one.
            is_disabled: capture lost all that the hook could lose.
        """
        if is_disabled and other.lost is None:
            return self.hook == other.hook
        same = (self.hook, self.detail, self.scope) == (other.hook, other.detail, other.scope)
        return same and (self.scope is not None or self.lost is not None)


def reference_to(subject: Any) -> Callable[[], Any]:
    """Return a weak reference, where there may be one."""
    with suppress(TypeError):
        return _no_object if subject is None else weakref.ref(subject)
    return _no_object


def failure_detail(error: BaseException) -> str:
    """Say what failed and where, in one short line; no file is read, which may fail as well."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    text = str(error).partition("\n")[0][:200]
    where = f"{Path(frame.f_code.co_filename).name}:{line} ({frame.f_code.co_name})"
    return f"{type(error).__name__} at {where}: {text}"
