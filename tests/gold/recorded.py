"""Which recordings have a gold file, and how the text of each is made."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import profiler_ext
from profiler_ext.sessions.merging import merge
from profiler_ext.sessions.session import Session
from tests.attribution.recordings import FIXTURES, recording
from tests.cases.neutral import FOLDER, SUFFIX
from tests.gold.sections import merged_text, session_text

GOLD = FIXTURES / "gold"


def texts() -> dict[str, Callable[[], str]]:
    """Return for each gold file, by name, what makes its text."""
    cases = {path.name.removesuffix(SUFFIX): path for path in sorted(FOLDER.glob(f"*{SUFFIX}"))}
    ranked = sorted({name.partition(".")[0] for name in cases if ".rank_" in name})
    return {
        **{name: partial(_of_file, path) for name, path in cases.items()},
        **{f"{name}.merged": partial(_of_ranks, name) for name in ranked},
        "probed.cg": partial(_of_probe, "cg"),
        "mlp": partial(_of_file, FIXTURES / f"mlp{SUFFIX}"),
        "plain.user": partial(_of_file, FIXTURES / "user.pt.trace.json.gz"),
    }


def path_of(name: str) -> Path:
    """Return the gold file of a name."""
    return GOLD / f"{name}.txt"


def _of_file(path: Path) -> str:
    return session_text(profiler_ext.load(path))


def _of_ranks(name: str) -> str:
    paths = sorted(FOLDER.glob(f"{name}.rank_*{SUFFIX}"))
    return merged_text(merge([profiler_ext.load(path) for path in paths]))


def _of_probe(name: str) -> str:
    return session_text(Session(recording(name)))
