"""The texts by which two versions of the code that captures are compared.

A gold file shows what attribution makes of a recording; what capture puts into one shows when
the same cases are recorded with each version, on any device, each time with an empty cache:

    TORCHINDUCTOR_CACHE_DIR=$(mktemp -d) python -m tests.cases --device cpu --out DIR [CASE ...]
    python -m tests.gold.captured DIR TEXTS    # then: diff -r TEXTS OTHER_TEXTS
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
from pathlib import Path

import profiler_ext
from profiler_ext.sessions.session import FILE_NAME
from tests.cases.neutral import neutral
from tests.gold.sections import captured_text


def write_texts(folder: Path, texts: Path) -> list[Path]:
    """Write the text of each session in a folder, and return the files."""
    texts.mkdir(parents=True, exist_ok=True)
    return [_write(path, folder, texts) for path in sorted(folder.glob(f"**/{FILE_NAME}"))]


def _write(path: Path, folder: Path, texts: Path) -> Path:
    target = texts / f"{'.'.join(path.parent.relative_to(folder).parts)}.txt"
    with tempfile.TemporaryDirectory() as made:
        session = Path(made) / path.name
        session.write_bytes(gzip.compress(neutral(gzip.decompress(path.read_bytes())), 1))
        target.write_text(captured_text(profiler_ext.load(session)))
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("texts", type=Path)
    options = parser.parse_args()
    for path in write_texts(options.folder, options.texts):
        print(path)


if __name__ == "__main__":
    main()
