"""The list of formats. A new one is a module of this package that writes it, and a row here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_ext.errors import UsageError
from profiler_ext.exporters.extras import PARQUET, TENSORBOARD, Extra
from profiler_ext.exporters.table_kinds import WRITTEN, load_function

if TYPE_CHECKING:
    from profiler_ext.records.analysis import Analysis

FILE_NAME = "session.pt.trace.json.gz"  # the recording in a session's folder
Roots = Iterable[str | Path]
_TABLE_FILES = tuple((f"{kind.name}.csv", kind.description) for kind in WRITTEN)


@dataclass(frozen=True, slots=True)
class Format:
    """An export format of a session; functions are named ``module:function``, loaded lazily."""

    name: str  # what messages and ``--format json`` call it
    description: str  # shown to users
    suffixes: tuple[str, ...]  # ``""`` for paths without a suffix
    target: str  # default file or folder in the session
    writer: str  # (analysis, path) -> path written
    ranks_writer: str | None = None  # ``None``: one rank only
    is_folder: bool = False
    shows_source: bool = False  # writers take ``roots``
    run_outputs: tuple[tuple[str, str], ...] = ()  # files that ``run`` writes, and their use
    writing: Extra | None = None  # needed to write it
    viewing: Extra | None = None  # needed to view it
    how_to_view: str | None = None  # path -> hints

    def write(self, analysis: Analysis, path: Path, roots: Roots = ()) -> Path:
        """Write one rank's analysis."""
        return self._written(self.writer, analysis, path, roots)

    def write_ranks(self, analyses: Sequence[Analysis], path: Path, roots: Roots = ()) -> Path:
        """Write several ranks' analyses."""
        return self._written(self.require_ranks(), analyses, path, roots)

    @property
    def holds_ranks(self) -> bool:
        """Whether it can hold several ranks."""
        return self.ranks_writer is not None

    def require_ranks(self) -> str:
        """Return the name of the writer for several ranks.

        Raises:
            UsageError: It holds one rank only.
        """
        if self.ranks_writer is None:
            listed = ", ".join(each.name for each in FORMATS if each.holds_ranks)
            raise UsageError(
                f"{self.name} cannot hold several ranks; use one of {listed}, "
                "or export one rank's folder"
            )
        return self.ranks_writer

    def _written(self, writer: str, what: object, path: Path, roots: Roots) -> Path:
        if self.writing is not None:
            self.writing.require(self.name)
        more = {"roots": roots} if self.shows_source else {}
        written: Path = load_function(writer)(what, path, **more)
        return written

    def place_in(self, folder: Path) -> Path:
        """Return where ``run`` writes it in a session's folder."""
        return folder if self.is_folder else folder / self.run_outputs[0][0]

    def hints(self, path: Path) -> tuple[str, ...]:
        """Return how to view what was written to a path."""
        return () if self.how_to_view is None else tuple(load_function(self.how_to_view)(path))


# The format in which sessions are stored.
SESSION = Format(
    name="chrome",
    description="PyTorch's own trace with everything added; it loads back as a session",
    suffixes=(".json.gz", ".json"),
    target="trace.json.gz",
    writer="chrome_trace:export_chrome_trace",
    run_outputs=((FILE_NAME, "the session: profiler-ext report DIR; opens in Perfetto too"),),
)

FORMATS = (
    Format(
        name="perfetto",
        description="a trace for ui.perfetto.dev: each launch with lines, modules, phase, FX nodes",
        suffixes=(".pftrace",),
        target="trace.pftrace",
        writer="perfetto:export_perfetto",
        ranks_writer="perfetto:export_ranks",
        run_outputs=(("trace.pftrace", "open it in the Perfetto UI"),),
        how_to_view="perfetto:how_to_view",
    ),
    SESSION,
    Format(
        name="html",
        description="a page for the browser: step time breakdown, flame graphs, source with time",
        suffixes=(".html",),
        target="report.html",
        writer="html:export_html",
        ranks_writer="html:export_ranks",
        shows_source=True,
        run_outputs=(("report.html", "open it in a browser"),),
    ),
    Format(
        name="speedscope",
        description="flame graphs for speedscope.app: modules, lines and kernels by device time",
        suffixes=(".speedscope.json",),
        target="flame.speedscope.json",
        writer="speedscope:export_speedscope",
        ranks_writer="speedscope:export_ranks",
        how_to_view="speedscope:how_to_view",
    ),
    Format(
        name="csv",
        description="a folder of tables, one CSV file each",
        suffixes=(".csv",),
        target="tables.csv",
        writer="tables.folders:export_csv",
        ranks_writer="tables.folders:export_ranks_csv",
        is_folder=True,
        run_outputs=_TABLE_FILES,
    ),
    Format(
        name="parquet",
        description="a folder of typed tables",
        suffixes=(".parquet",),
        target="tables.parquet",
        writer="tables.folders:export_parquet",
        ranks_writer="tables.folders:export_ranks_parquet",
        is_folder=True,
        writing=PARQUET,
    ),
    Format(
        name="tensorboard",
        description="a log folder for TensorBoard, with our view and torch-tb-profiler's",
        suffixes=("",),
        target="tensorboard",
        writer="tensorboard_plugin.export:export_tensorboard",
        ranks_writer="tensorboard_plugin.export:export_ranks",
        is_folder=True,
        shows_source=True,
        viewing=TENSORBOARD,
        how_to_view="tensorboard_plugin.export:how_to_view",
    ),
)


def run_outputs() -> tuple[Format, ...]:
    """Return the formats that ``run`` writes by default."""
    return tuple(each for each in FORMATS if each.run_outputs)


def format_named(name: str) -> Format:
    """Return the format with a name."""
    for each in FORMATS:
        if each.name == name:
            return each
    listed = ", ".join(each.name for each in FORMATS)
    raise UsageError(f"there is no format {name!r}; use one of {listed}")


def format_of(path: str | Path) -> Format:
    """Return the format of a path's suffix, the longest that fits.

    A path without a suffix, or one that ends with ``/``, is a folder for TensorBoard.
    """
    name = Path(path).name
    suffixes = {suffix: each for each in FORMATS for suffix in each.suffixes}
    for suffix in sorted(filter(None, suffixes), key=len, reverse=True):
        if name.endswith(suffix):
            return suffixes[suffix]
    if "" in suffixes and (not Path(name).suffix or str(path).endswith("/")):
        return suffixes[""]
    listed = ", ".join(filter(None, suffixes))
    raise UsageError(
        f"no format has the suffix of {name}; use one of {listed}, or end it with / for a "
        "TensorBoard folder"
    )
