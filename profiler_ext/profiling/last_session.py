"""Owns that a profiler answers what its last session does."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from profiler_ext.sessions.explained import SessionExplanations

if TYPE_CHECKING:
    import pandas as pd

    from profiler_ext.exporters.tables import Filters
    from profiler_ext.findings import Findings
    from profiler_ext.records import Analysis
    from profiler_ext.sessions.session import Session


class LastSessionMixin(SessionExplanations):
    """Has what can be asked of a session, of the last one that there is."""

    sessions: list[Session]

    @property
    @abstractmethod
    def session(self) -> Session:
        """The last session."""

    @property
    def analyses(self) -> tuple[Analysis, ...]:
        """What attribution found in the last session."""
        return self.session.analyses

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for a person: what is missing in the last session, and the remedy."""
        return self.session.notes

    @property
    def found(self) -> Findings:
        """What to do first in the last session."""
        return self.session.found

    def table(self, name: str, *arguments: Any, **filters: Unpack[Filters]) -> pd.DataFrame:
        """Return a table of the last session by its name; see :meth:`Tabled.table`.

        Args:
            name: the table's name.
            *arguments: what that table takes besides filters.
            **filters: the step, rank, phase or scope.
        """
        return self.session.table(name, *arguments, **filters)

    def report(
        self,
        by: str = "line",
        top: int | None = 15,
        format: str = "text",
        width: int = 120,
        **options: Any,
    ) -> str:
        """Return :meth:`Session.report` of the last session.

        Args:
            by: a table that has a ``by``.
            top: so many rows at most; ``None`` for all.
            format: ``text``, ``csv``, ``json`` or ``md``.
            width: of lines of text, in characters.
            **options: the others of :meth:`Session.report`.
        """
        return self.session.report(by, top, format, width, **options)

    def annotate(self, *files: str, format: str = "text", width: int = 120) -> str:
        """Return :meth:`Session.annotate` of the last session.

        Args:
            *files: names or ends of paths; without any, every file that took time.
            format: ``text`` or ``json``.
            width: of lines of text, in characters.
        """
        return self.session.annotate(*files, format=format, width=width)

    def export(self, path: str | Path) -> Path:
        """Write the last session; see :meth:`profiler_ext.sessions.session.Session.export`."""
        return self.session.export(path)

    def assert_coverage(
        self, fraction: float, level: str = "line", scope: str = "compiled"
    ) -> None:
        """Raise unless enough time was led back: :meth:`Session.assert_coverage`.

        Args:
            fraction: the least part, 0 to 1.
            level: ``line`` or ``op``: how far it must have been led.
            scope: ``compiled``, ``eager`` or ``all``: which busy time counts.

        Raises:
            CoverageError: Less was led back.
        """
        self.session.assert_coverage(fraction, level, scope)

    def _repr_html_(self) -> str | None:
        """Return what a notebook shows: the last session, when there is one."""
        return self.session._repr_html_() if self.sessions else None
