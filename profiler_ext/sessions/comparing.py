"""Compares sessions: two sides of one or more, their tables and reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_ext.comparison.comparison import BY, Comparison, compare
from profiler_ext.comparison.gate import Gate, Sizes, judge
from profiler_ext.comparison.notes import notes
from profiler_ext.comparison.sides import RunOfRanks
from profiler_ext.errors import UsageError
from profiler_ext.kineto.source import is_folder
from profiler_ext.records.step_kinds import of_usual_kind
from profiler_ext.sessions import merging, session

if TYPE_CHECKING:
    import pandas as pd

Runs = tuple[Sequence[RunOfRanks], Sequence[RunOfRanks]]
Compared = str | Path | session.Session | merging.MergedSession
FORMATS = ("text", "csv", "json", "md")


class ComparedSessions:
    """Two sides of sessions compared.

    Attributes:
        comparison: the records; see :mod:`profiler_ext.comparison.records`.
        runs: the runs of the base, and of the head.
        sizes: of the recordings' files; ``None`` where a side was given as a session.
    """

    def __init__(
        self, comparison: Comparison, runs: Runs = ((), ()), sizes: Sizes | None = None
    ) -> None:
        self.comparison = comparison
        self.runs = runs
        self.sizes = sizes

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that qualify the comparison: what to know before trusting a difference."""
        return notes(self.comparison)

    def gate(self, *conditions: str) -> Gate:
        """Evaluate conditions on the comparison; see ``docs/gate.md``.

        Raises:
            UsageError: One is not understood, or matches nothing of either side.
        """
        return judge(self.comparison, conditions, self.sizes)

    def export(self, path: str | Path, *conditions: str) -> Path:
        """Write the comparison as a file; the suffix names the format.

        Args:
            path: ``.html`` for a page; ``.pftrace`` for both sides on one time axis in Perfetto.

        Raises:
            OutputError: It cannot be written.
            UsageError: The suffix names no format, or a condition is not understood.
        """
        from profiler_ext.exporters.html.comparison import export_comparison
        from profiler_ext.exporters.perfetto import export_sides

        path = Path(path)
        if path.suffix == ".html":
            gate = self.gate(*conditions) if conditions else None
            return export_comparison(self.comparison, path, gate)
        if path.suffix == ".pftrace":
            return export_sides(self.runs, path)
        raise UsageError(
            f"a comparison is written as .html or .pftrace, and {str(path)!r} ends otherwise"
        )

    def table(self, by: str = "line") -> pd.DataFrame:
        """Return a table, the largest difference first.

        Raises:
            UsageError: There is no such table.
        """
        from profiler_ext.exporters.tables.comparison import compared

        return compared(self.comparison, by).to_pandas()

    def report(
        self, by: str = "line", top: int | None = 15, format: str = "text", width: int = 120
    ) -> str:
        """Return what changed as text; see ``profiler-ext diff``.

        Raises:
            UsageError: There is no such table or format, or ``top`` is less than 1.
        """
        from profiler_ext.exporters.diff.markdown import comparison_markdown
        from profiler_ext.exporters.diff.terminal import comparison_text
        from profiler_ext.exporters.json_output.bounds import answer_text
        from profiler_ext.exporters.json_output.comparison import comparison_answer
        from profiler_ext.exporters.tables.comparison import compared
        from profiler_ext.exporters.views.summary import table_text

        if format == "text":
            return comparison_text(self.comparison, by, top, width)
        if format == "md":
            return comparison_markdown(self.comparison, by, top)
        if format == "json":
            return answer_text(comparison_answer(self.comparison, by, top))
        if format == "csv":
            return table_text(compared(self.comparison, by), top, format)
        raise UsageError(f"there is no format {format!r}; ask for {', '.join(FORMATS)}")

    def __repr__(self) -> str:
        total = self.comparison.step.change
        return (
            f"<comparison of {len(self.comparison.base.runs)} and "
            f"{len(self.comparison.head.runs)} runs: a step {total.base_per_step_ns:,.0f} ns -> "
            f"{total.head_per_step_ns:,.0f} ns, {total.verdict}; tables by {', '.join(BY)}>"
        )


def diff(
    base: Compared | Sequence[Compared], head: Compared | Sequence[Compared]
) -> ComparedSessions:
    """Compare two runs, or several of each side.

    Args:
        base: the path of a session or trace, a session, or several of these.
        head: the other side, in the same way.

    Raises:
        TraceError: A path holds no readable trace.
        UsageError: A side is empty, or a session has no profiled step.
    """
    sides = [
        [side_inputs] if isinstance(side_inputs, Compared) else list(side_inputs)
        for side_inputs in (base, head)
    ]
    runs = _runs("base", sides[0]), _runs("head", sides[1])
    return ComparedSessions(compare(*runs), runs, _sizes(sides))


def _sizes(sides: Sequence[Sequence[Compared]]) -> Sizes | None:
    """Return the sizes of each recording's files, where all are files."""
    if not all(isinstance(each, str | Path) for side in sides for each in side):
        return None
    base, head = (tuple(_recorded_bytes(Path(str(each))) for each in side) for side in sides)
    return Sizes(base, head)


def _recorded_bytes(path: Path) -> int:
    """Return the total size of the files that :func:`load` reads."""
    if not is_folder(path):
        return path.stat().st_size
    parts = session.rank_files(path) or [path]
    return sum((session.file_in(p) if is_folder(p) else p).stat().st_size for p in parts)


def _runs(side: str, every: Sequence[Compared]) -> list[RunOfRanks]:
    return [
        _run(each, side if len(every) == 1 else f"{side} {n}") for n, each in enumerate(every, 1)
    ]


def _run(each: Compared, name: str) -> RunOfRanks:
    if isinstance(each, str | Path):
        each, name = merging.load(each), str(each)
    return RunOfRanks(name, tuple(map(of_usual_kind, each.analyses)))
