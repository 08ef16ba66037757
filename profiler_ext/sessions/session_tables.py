"""The tables and explanations of any session, of one rank or of several."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Unpack

from profiler_ext.collector import without_collector

if TYPE_CHECKING:
    import pandas as pd

    from profiler_ext.exporters.tables import Filters, Table
    from profiler_ext.findings import Findings
    from profiler_ext.records.analysis import Analysis


class SessionTables(ABC):
    """The tables of a session, each made on demand, with filters ``step``, ``rank``, ``phase``."""

    @abstractmethod
    def columns(self, name: str, *arguments: Any, **filters: Unpack[Filters]) -> Table:
        """Return the same as :meth:`table`, as columns: pandas is not imported.

        Args:
            name: ``launches``, ``by_line``, ...
            *arguments: arguments of that method besides filters.
            **filters: the step, rank, phase or scope.

        Raises:
            UsageError: There is no such table, step or phase.
        """

    def table(self, name: str, *arguments: Any, **filters: Unpack[Filters]) -> pd.DataFrame:
        """Return the table that the methods below name.

        Args:
            name: ``launches``, ``by_line``, ...
            *arguments: arguments of that method besides filters.
            **filters: the step, rank, phase or scope.

        Raises:
            UsageError: There is no such table, step or phase.
        """
        with without_collector():
            return self.columns(name, *arguments, **filters).to_pandas()

    @property
    @abstractmethod
    def recommendations(self) -> Findings:
        """Top recommendations, as records; :meth:`findings` is the same as a table."""

    def findings(self, **filters: Unpack[Filters]) -> pd.DataFrame:
        """Return what to do first, what has most at stake first.

        Args:
            **filters: the rank; findings are of all steps, phases and scopes.
        """
        return self.table("findings", **filters)

    def launches(self, **filters: Unpack[Filters]) -> pd.DataFrame:
        """Return one row for each launch.

        Args:
            **filters: the step, rank, phase or scope.
        """
        return self.table("launches", **filters)

    def attribution(self, **filters: Unpack[Filters]) -> pd.DataFrame:
        """Return one row for each launch and FX node, or gap.

        Args:
            **filters: the step, rank, phase or scope.
        """
        return self.table("attribution", **filters)

    def by_line(self, view: str = "model", **filters: Unpack[Filters]) -> pd.DataFrame:
        """Return time by source line; ``view="user"`` uses the innermost line of your own code.

        Args:
            view: ``model`` or ``user``.
            **filters: the step, rank, phase or scope.
        """
        return self.table("by_line", view, **filters)

    def by_module(self, depth: int | None = None, **filters: Unpack[Filters]) -> pd.DataFrame:
        """Return time by module; ``depth`` cuts paths to that many names.

        Args:
            depth: so many names of a path at most; ``None`` for all.
            **filters: the step, rank, phase or scope.
        """
        return self.table("by_module", depth, **filters)

    def by_op(self, **filters: Unpack[Filters]) -> pd.DataFrame:
        """Return time by ATen op.

        Args:
            **filters: the step, rank, phase or scope.
        """
        return self.table("by_op", **filters)

    def by_phase(self, **filters: Unpack[Filters]) -> pd.DataFrame:
        """Return time by phase.

        Args:
            **filters: the step, rank, phase or scope.
        """
        return self.table("by_phase", **filters)

    def by_link(self, **filters: Unpack[Filters]) -> pd.DataFrame:
        """Return time by the rule that tied backward work to its forward.

        Args:
            **filters: the step, rank, phase or scope.
        """
        return self.table("by_link", **filters)

    def by_mechanism(self, **filters: Unpack[Filters]) -> pd.DataFrame:
        """Return device time by the way by which its source lines were found, largest first.

        Args:
            **filters: the step, rank, phase or scope.
        """
        return self.table("by_mechanism", **filters)

    def by_kernel(self, **filters: Unpack[Filters]) -> pd.DataFrame:
        """Return time by kernel.

        Args:
            **filters: the step, rank, phase or scope.
        """
        return self.table("by_kernel", **filters)

    def by_site(self, **filters: Unpack[Filters]) -> pd.DataFrame:
        """Return time by kernel and the call site, or line, that launches it.

        Args:
            **filters: the step, rank, phase or scope.
        """
        return self.table("by_site", **filters)

    def idle_by_line(self, **filters: Unpack[Filters]) -> pd.DataFrame:
        """Return the time in which devices ran nothing, by the line at which the CPU was.

        Args:
            **filters: the step or rank; idle time has no filter by phase.
        """
        return self.table("idle_by_line", **filters)

    def communication(self, **filters: Unpack[Filters]) -> pd.DataFrame:
        """Return device time of collectives: exposed, overlapped, waiting for the last rank.

        Args:
            **filters: the step, rank, phase or scope.
        """
        return self.table("communication", **filters)

    def skew(self, **filters: Unpack[Filters]) -> pd.DataFrame:
        """Return which rank came last to collectives, and what it spent more time in.

        Args:
            **filters: the step, rank, phase or scope of the collectives.
        """
        return self.table("skew", **filters)

    def idle_by_cause(self, **filters: Unpack[Filters]) -> pd.DataFrame:
        """Return the time in which devices ran nothing, by its cause and the line of that.

        Args:
            **filters: the step or rank; idle time has no filter by phase.
        """
        return self.table("idle_by_cause", **filters)

    def graphs(self, **filters: Unpack[Filters]) -> pd.DataFrame:
        """Return one row for each graph instance.

        Args:
            **filters: the step, rank, phase or scope.
        """
        return self.table("graphs", **filters)

    def fusions(self, **filters: Unpack[Filters]) -> pd.DataFrame:
        """Return the buffers that pass between kernels, and why these were not fused.

        Args:
            **filters: the step, rank, phase, scope or kernel (of the one that loads the buffer).
        """
        return self.table("fusions", **filters)

    def compiles(self, **filters: Unpack[Filters]) -> pd.DataFrame:
        """Return compile times by phase, the reasons, and what the graphs then cost.

        Args:
            **filters: the step or rank; compiling has no filter by phase or scope.
        """
        return self.table("compiles", **filters)

    def by_memory(self, **filters: Unpack[Filters]) -> pd.DataFrame:
        """Return what is alive at the peak of device memory of each step, if it was recorded.

        Args:
            **filters: the step, rank or phase (of the allocation).
        """
        return self.table("by_memory", **filters)

    def utilisation(self, **filters: Unpack[Filters]) -> pd.DataFrame:
        """Return the model FLOPs utilisation (MFU) of each step, where it is known.

        Args:
            **filters: the step or rank; there is no filter by phase or scope.
        """
        return self.table("utilisation", **filters)

    def by_step(self, **filters: Unpack[Filters]) -> pd.DataFrame:
        """Return each step: wall and busy time, and of inference its kind and tokens.

        Args:
            **filters: the step or rank; there is no filter by phase or scope.
        """
        return self.table("by_step", **filters)

    def coverage(self, **filters: Unpack[Filters]) -> pd.DataFrame:
        """Return how much time is attributed, idle, or a gap; it has no filter by phase.

        Args:
            **filters: the step or rank.
        """
        return self.table("coverage", **filters)


class SessionExplanations(SessionTables):
    """The page about one line, module or kernel."""

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
            top: rows of each table; ``None`` for all.
            budget: most bytes of ``json``, about; ``None`` for no bound.
            against: an earlier session, to show what changed.

        Returns:
            The page.

        Raises:
            UnclearNameError: The name matches several things, or none.
            UsageError: There is no such format, or one of two sessions has no profiled step.
        """
        from profiler_ext.exporters.explain.against import Earlier
        from profiler_ext.exporters.explain.printing import explained

        earlier = None if against is None else Earlier("the other", against.analyses)
        return explained(self, name, format, width, top, budget, earlier)
