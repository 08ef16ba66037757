"""Owns what can be asked of anything that holds the result of profiling: all about one thing."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from profiler_ext.sessions.tabled import SessionTables

if TYPE_CHECKING:
    from profiler_ext.records import Analysis


class SessionExplanations(SessionTables):
    """Has the page about one line, module or kernel."""

    @property
    @abstractmethod
    def analyses(self) -> tuple[Analysis, ...]:
        """What attribution found, one for each rank."""

    @property
    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """Sentences for a person: what is missing, and the remedy."""

    def explain(
        self,
        name: str,
        format: str = "text",
        width: int = 120,
        top: int | None = 8,
        budget: int | None = None,
        against: SessionExplanations | None = None,
    ) -> str:
        """Return all about one line, module or kernel; see ``profiler-ext explain``.

        Args:
            name: ``FILE:LINE``, a module's path (``layers.*.mlp`` for those alike), or a kernel.
            format: ``text``, ``json`` or ``md``.
            width: of lines of text, in characters.
            top: so many rows of each table at most; ``None`` for all.
            budget: of ``json`` about so many bytes at most; ``None`` for no bound.
            against: a session from before: tells what changed since.

        Returns:
            The page.

        Raises:
            UnclearNameError: The name means several things, or none.
            UsageError: There is no such format, or one of two sessions has no profiled step.
        """
        from profiler_ext.exporters.explain.against import Earlier
        from profiler_ext.exporters.explain.printing import explained

        earlier = None if against is None else Earlier("the other", against.analyses)
        return explained(self, name, format, width, top, budget, earlier)
