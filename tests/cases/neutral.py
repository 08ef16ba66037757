"""Owns how a recorded session becomes a fixture: neutral paths, and what its replay must show.

python -m tests.cases.neutral DIR [CASE ...]    DIR is the --out of `python -m tests.cases`
python -m tests.cases.neutral                   what the fixtures show now is what they must show
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path

import profiler_ext
from profiler_ext.exporters import tables
from profiler_ext.session import FILE_NAME, Session

FOLDER = Path(__file__).parents[1] / "fixtures" / "h200" / "cases"
EXPECTED = FOLDER / "expected.json"
SUFFIX = ".session.pt.trace.json.gz"
LINES = 12


def neutral(trace: bytes) -> bytes:
    """Return a session with the recording machine's folders replaced, the longest first."""
    replaced = sorted(_folders(trace), key=lambda pair: len(pair[0]), reverse=True)
    for found, shown in replaced:
        trace = re.sub(re.escape(found.encode()) + rb"(?![\w.-])", shown.encode(), trace)
    trace = re.sub(rb'("--out",")[^"]+', rb"\1/tmp/cases", trace)
    return re.sub(rb"/tmp/profiler_ext-[^/\"]+/", b"/tmp/", trace)


def _folders(trace: bytes) -> Iterator[tuple[str, str]]:
    written = json.loads(trace)["profilerExt"]
    settings = written["settings"]
    yield min(settings["user_roots"], key=len), "/src"
    for root in settings["library_roots"]:
        before, found, _ = root.partition("/.local/lib/")
        if found:
            yield before, "/home/user"
        elif not root.startswith("/usr/"):
            yield re.split(r"/(?:local/)?lib/python", root)[0], "/venv"
    for graph in written["graphs"]:
        if graph.get("output_module"):
            yield str(Path(graph["output_module"]).parents[1]), "/tmp/inductor"


def expectation(session: Session) -> dict[str, object]:
    """Return what a replay of a session must show at least."""
    lines = session.by_line().dropna(subset=["file"]).head(LINES)
    phases = session.by_phase()
    return {
        "share": int(tables.fraction_at(session.analysis) * 10_000) / 10_000,
        "launches": len(session.analysis.launches),
        "phases": sorted(set(phases["phase"][phases["duration_ns"] > 0]) - {"other"}),
        "lines": sorted(f"{row.file}:{row.line} {row.code}" for row in lines.itertuples()),
    }


def keep(name: str, session_file: Path) -> None:
    """Write the fixture of one case, and what its replay must show."""
    FOLDER.mkdir(exist_ok=True)
    fixture = FOLDER / f"{name}{SUFFIX}"
    text = neutral(gzip.decompress(session_file.read_bytes()))
    fixture.write_bytes(gzip.compress(text, 9, mtime=0))
    expect(name)


def expect(name: str) -> None:
    """Write down what the replay of a fixture shows now."""
    fixture = FOLDER / f"{name}{SUFFIX}"
    known = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    known[name] = expectation(profiler_ext.load(fixture))
    EXPECTED.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("cases", nargs="*", help="by default every case that was found good")
    options = parser.parse_args()
    if options.folder is None:
        for fixture in FOLDER.glob(f"*{SUFFIX}"):
            expect(fixture.name.removesuffix(SUFFIX))
        return
    for path in sorted(options.folder.glob(f"**/{FILE_NAME}")):
        parts = path.parent.relative_to(options.folder).parts  # ("ddp", "rank_0")
        found = json.loads((options.folder / f"{parts[0]}.json").read_text())
        wanted = parts[0] in options.cases if options.cases else found["ok"]
        # After an error the session that is there is an older one.
        if wanted and "error" not in found:
            name = ".".join(parts)
            keep(name, path)
            print(f"{FOLDER / name}{SUFFIX}")


if __name__ == "__main__":
    main()
