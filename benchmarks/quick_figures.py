"""The figures that two versions are compared by: commands that both of them understand.

Nothing here may need what only one version has; so these are commands of the command line, and
calls that the README promises.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TABLES = """\
import sys, profiler_ext
session = profiler_ext.load(sys.argv[1])
for name in ("line", "module", "op", "kernel", "site", "phase"):
    print(name, len(getattr(session, f"by_{name}")()))
print(len(session.coverage()), len(session.idle_by_cause()), len(session.communication()))
"""
ENABLED = "import torch, profiler_ext; profiler_ext.enable()"
OURS = (sys.executable, "-m", "profiler_ext")
Command = Callable[[Path, Path], list[str]]
"""How it is run: with the long recording, and a folder for what it writes."""


@dataclass(frozen=True, slots=True)
class Quick:
    """A figure that takes seconds.

    Attributes:
        name: what is measured.
        command: how.
    """

    name: str
    command: Command


def _export(format: str) -> Quick:
    # --to, which 0.3.0 needs, so that it can be compared with.
    return Quick(
        f"export --to {format}",
        lambda file, out: [*OURS, "export", str(file), "--to", format, "-o", str(out / "written")],
    )


EXPORTS = tuple(map(_export, ("perfetto", "csv", "html", "tensorboard", "chrome")))
QUICK = (
    Quick("profiler-ext --help", lambda file, out: [*OURS, "--help"]),
    Quick("import torch, enable()", lambda file, out: [sys.executable, "-c", ENABLED]),
    Quick("file to tables", lambda file, out: [sys.executable, "-c", TABLES, str(file)]),
    Quick("report", lambda file, out: [*OURS, "report", str(file)]),
    Quick(
        "report --format json", lambda file, out: [*OURS, "report", str(file), "--format", "json"]
    ),
    *EXPORTS,
)
