"""How a recorded session becomes a fixture: with neutral paths.

python -m tests.cases.neutral DIR [CASE ...]    DIR is the --out of `python -m tests.cases`, or
                                                has a folder CASE with a session of somebody's
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from profiler_ext.errors import TraceError
from profiler_ext.kineto.recording import read_recording
from profiler_ext.records.recording import GeneratedModule, generated_module
from profiler_ext.sessions.session import FILE_NAME

FOLDER = Path(__file__).parents[1] / "fixtures" / "h200" / "cases"
SUFFIX = ".session.pt.trace.json.gz"


def neutral(trace: bytes) -> bytes:
    """Return a session with the recording machine's folders replaced, the longest first."""
    folders = sorted(_folders(trace), key=lambda pair: len(pair[0]), reverse=True)
    trace = re.sub(rb'("--out",")[^"]+', rb"\1/tmp/cases", with_code(trace, folders))
    return re.sub(rb"/tmp/profiler_ext-[^/\"]+/", b"/tmp/", replaced(trace, folders))


def replaced(text: bytes, folders: Sequence[tuple[str, str]]) -> bytes:
    for found, shown in folders:
        text = re.sub(re.escape(found.encode()) + rb"(?![\w.-])", shown.encode(), text)
    return text


def with_code(trace: bytes, folders: Sequence[tuple[str, str]]) -> bytes:
    """Return the session with the folders replaced in the generated code, which is packed."""
    answer = json.loads(trace)["profilerExt"].get("generated", [])
    modules = msgspec.convert(answer, tuple[GeneratedModule, ...])
    texts = (replaced(module.text.encode(), folders).decode() for module in modules)
    changed = [
        generated_module(*pair) for pair in zip(texts, (m.paths for m in modules), strict=True)
    ]
    return trace.replace(msgspec.json.encode(modules), msgspec.json.encode(changed))


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


def why_not(session_file: Path) -> str | None:
    """Return why a file cannot become a fixture, ``None`` where it can."""
    try:
        settings = read_recording(session_file).settings
    except TraceError as error:
        return str(error)
    if not settings.user_roots:
        return (
            f"{session_file} is a trace of plain torch.profiler, which says of no folder whose it "
            "is; expected a session that `profiler-ext run` or `profiler_ext.profile` recorded"
        )
    return None


def keep(name: str, session_file: Path) -> None:
    """Write the fixture of one case."""
    FOLDER.mkdir(exist_ok=True)
    fixture = FOLDER / f"{name}{SUFFIX}"
    text = neutral(gzip.decompress(session_file.read_bytes()))
    fixture.write_bytes(gzip.compress(text, 9, mtime=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="*", help="by default every case that was found good")
    options = parser.parse_args()
    wanted = dict(_wanted(options.folder, options.cases))
    if problem := next(filter(None, map(why_not, wanted.values())), None):
        parser.error(problem)
    for name, path in wanted.items():
        keep(name, path)
        print(f"{FOLDER / name}{SUFFIX}")


def _wanted(folder: Path, cases: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Yield the name of each fixture and the session that it is made of."""
    for path in sorted(folder.glob(f"*/**/{FILE_NAME}")):
        parts = path.parent.relative_to(folder).parts  # ("ddp", "rank_0")
        found = _found(folder / f"{parts[0]}.json")
        wanted = parts[0] in cases if cases else found.get("ok", False)
        # After an error the session that is there is an older one.
        if wanted and "error" not in found:
            yield ".".join(parts), path


def _found(row: Path) -> dict[str, object]:
    """What a case was found to be; nothing of a session that no case made."""
    return json.loads(row.read_text()) if row.exists() else {}


if __name__ == "__main__":
    main()
