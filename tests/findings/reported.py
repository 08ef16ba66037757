"""What the rules say of each recorded session, as text: a person judged each line of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import profiler_ext
from profiler_ext.findings import Finding, Findings, SavingPer
from profiler_ext.sessions.merging import merge
from tests.attribution.recordings import FIXTURES
from tests.cases.neutral import FOLDER, SUFFIX

REPORTED = Path(__file__).with_name("reported.txt")
PLAIN = ("cg", "ckpt", "default", "llama", "user")


def paths() -> dict[str, Path]:
    """Return the file of each recorded session, by name."""
    files = {path.name.removesuffix(SUFFIX): path for path in sorted(FOLDER.glob(f"*{SUFFIX}"))}
    files |= {f"plain {name}": FIXTURES / f"{name}.pt.trace.json.gz" for name in PLAIN}
    compiles = sorted((FIXTURES / "compiles").glob(f"*{SUFFIX}"))
    files |= {f"compiles {path.name.removesuffix(SUFFIX)}": path for path in compiles}
    flaws = sorted((FIXTURES / "findings").glob(f"*{SUFFIX}"))
    files |= {f"findings {path.name.removesuffix(SUFFIX)}": path for path in flaws}
    worked = sorted((FIXTURES / "worked").glob(f"*{SUFFIX}"))
    files |= {f"worked {path.name.removesuffix(SUFFIX)}": path for path in worked}
    two = sorted((FIXTURES.parent / "two_gpus").glob(f"*{SUFFIX}"))
    files |= {f"two_gpus {path.name.removesuffix(SUFFIX)}": path for path in two}
    return files | {"mlp": FIXTURES / f"mlp{SUFFIX}"}


def every() -> dict[str, Callable[[], str]]:
    """Return for each recorded session, by name, what makes its text."""
    ranks: dict[str, list[Path]] = {}
    for name, path in paths().items():
        if ".rank_" in name:
            ranks.setdefault(name.partition(".")[0], []).append(path)
    return {
        **{name: partial(_text, path) for name, path in paths().items()},
        **{f"{name}.merged": partial(_text_of_ranks, ranks[name]) for name in sorted(ranks)},
    }


def sections() -> dict[str, str]:
    """Return the text of each session that was judged."""
    parts = REPORTED.read_text().split("== ")[1:]
    return dict(part.split("\n", 1) for part in parts)


def _text(path: Path) -> str:
    return _lines(profiler_ext.load(path).recommendations)


def _text_of_ranks(paths: list[Path]) -> str:
    return _lines(merge([profiler_ext.load(path) for path in paths]).recommendations)


def _lines(findings: Findings) -> str:
    return "".join(f"{line}\n" for line in (*map(_line, findings.ranked), _unjudged(findings)))


def _line(finding: Finding) -> str:
    where = finding.location
    place = f" at {Path(where.file).name}:{where.line}" if where.file else ""
    in_module = f" in {where.module}" if where.module else ""
    shared = f" with {', '.join(finding.overlaps_with)}" if finding.overlaps_with else ""
    part = f"{finding.fraction:.0%} of a {finding.saving_per}"
    if finding.saving_per is SavingPer.UNKNOWN:
        part = "unknown"
    return f"{finding.rule} {part}{place}{in_module}{shared}"


def _unjudged(findings: Findings) -> str:
    names = ", ".join(dict.fromkeys(each.rule for each in findings.rules_skipped))
    return f"not judged: {names or 'none'}"
