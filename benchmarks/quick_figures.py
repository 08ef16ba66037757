"""The figures that two versions are compared by: commands that both of them understand.

Nothing here may need what only one version has; so these are commands of the command line, and
calls that the README promises.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.recordings import COMPILED, EAGER, EDITED, MASKS

TABLES = """\
import sys, profiler_ext
session = profiler_ext.load(sys.argv[1])
for name in ("line", "module", "op", "kernel", "site", "phase"):
    print(name, len(getattr(session, f"by_{name}")()))
print(len(session.coverage()), len(session.idle_by_cause()), len(session.communication()))
"""
UNCOMPILED = """\
import torch
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(20):
    model(torch.randn(32, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
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


def _trained(command: Sequence[str]) -> Command:
    def run(file: Path, out: Path) -> list[str]:
        script = out / "train.py"
        script.write_text(UNCOMPILED, encoding="utf-8")
        return [*command, str(script)]

    return run


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
FELT = (
    Quick("report of 18 kB", lambda file, out: [*OURS, "report", str(MASKS)]),
    Quick("report of 1 MB", lambda file, out: [*OURS, "report", str(EAGER)]),
    Quick("explain of a line", lambda file, out: [*OURS, "explain", str(COMPILED), "gpt.py:36"]),
    Quick("diff of two runs", lambda file, out: [*OURS, "diff", str(COMPILED), str(EDITED)]),
    Quick("a script that compiles nothing", _trained((sys.executable,))),
    Quick("run of that script", _trained((*OURS, "run"))),
)
"""What is waited for with a session as it comes: start-up counts most."""
