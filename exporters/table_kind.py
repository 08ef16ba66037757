"""Owns what a table of a session is: how it is called, made and shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from profiler_ext.errors import UsageError
from profiler_ext.exporters.loading import load_function

if TYPE_CHECKING:
    import pandas as pd

    from profiler_ext.records import Analysis


@dataclass(frozen=True, slots=True)
class TableKind:
    """A table of a session.

    Attributes:
        name: of its file in an export, and of its method of a session.
        words: what it holds, for a person.
        maker: the function that makes it of an analysis, as :mod:`.loading` names one.
        keys: the columns that tell its rows apart; none where rows may be alike.
        is_sum: it sums device time: of several ranks it is the sum.
        is_written: it is a file in an export to a folder of tables.
        by: what ``report --by`` calls it; ``None`` for those that it does not print.
        title: what heads it on a page.
        shown: of those the columns that name a row, and their headings.
        unnamed: what a row is called that has no name, and no gap.
        has_phases: it has a column for each phase.
        is_longest_first: a report shows its longest rows, not its first.
        drawer: the function that makes of it what a terminal shows, as :mod:`.loading` names one.
    """

    name: str
    words: str
    maker: str
    keys: tuple[str, ...] = ()
    is_sum: bool = False
    is_written: bool = False
    by: str | None = None
    title: str = ""
    shown: tuple[tuple[str, str], ...] = ()
    unnamed: str = ""
    has_phases: bool = True
    is_longest_first: bool = False
    drawer: str = "top_table:top_table"

    @property
    def headings(self) -> tuple[str, ...]:
        """What heads the columns that name a row."""
        return tuple(heading for _, heading in self.shown)

    def in_order(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return a table's rows in the order in which a report shows them."""
        if not self.is_longest_first:
            return table
        return table.sort_values("duration_ns", ascending=False, kind="stable", ignore_index=True)

    def arguments(self, depth: int | None) -> tuple[int, ...]:
        """Return what it takes besides filters, of what a user may ask for.

        Args:
            depth: how deep modules are told apart; ``None`` where nobody asks.

        Raises:
            UsageError: It has no depth, or that is less than 0.
        """
        if depth is None:
            return ()
        if depth < 0 or self.by != "module":
            allowed = "0 or more" if depth < 0 else "one of a report by module, which alone has it"
            raise UsageError(f"the depth is {depth}; ask for {allowed}")
        return (depth,)

    def make(self, analysis: Analysis, *arguments: Any, **filters: Any) -> pd.DataFrame:
        """Make it of an analysis.

        Args:
            analysis: what attribution found.
            *arguments: what its function takes besides filters.
            **filters: the step, rank, phase or scope; ``None`` does not narrow it.

        Returns:
            The table.

        Raises:
            UsageError: There is no such step, rank or phase, or the table has none.
        """
        given = {name: value for name, value in filters.items() if value is not None}
        own, rank = analysis.recording.settings.rank, given.get("rank")
        if rank not in (None, own):
            raise UsageError(f"there is no rank {rank}; the session is of rank {own} alone")
        if not self.has_phases and (wrong := sorted(given.keys() & {"phase", "scope", "kernel"})):
            names = " and ".join(wrong)
            raise UsageError(f"{self.name} is of no work and has no {names}; leave that out")
        table: pd.DataFrame = load_function(self.maker)(analysis, *arguments, **given)
        return table
