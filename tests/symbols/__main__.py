"""Owns the recording of the tables: what torch has of the names that torch_compat stands on.

python -m tests.symbols 2.11.0 2.12.1 ...      fetches each wheel (0.5 GB) and reads its source
python -m tests.symbols PATH ...               reads wheels or site-packages folders at hand

Each torch has its table in tests/fixtures/symbols. Record all of them anew when torch_compat
stands on another name.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from profiler_ext.torch_compat.behaviour import build_of
from tests.symbols.reading import Sources
from tests.symbols.tables import FOLDER, table_of, table_text


def record(place: Path) -> None:
    """Write the table of the torch in a wheel or a site-packages folder."""
    sources = Sources(place)
    version = sources.version()
    text = table_text(version, table_of(sources.shape, build_of(version)))
    (FOLDER / f"torch-{version}.json").write_text(text)


def main() -> None:
    for word in sys.argv[1:]:
        if Path(word).exists():
            record(Path(word))
            continue
        with tempfile.TemporaryDirectory() as folder:
            fetch = ("-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder)
            subprocess.run([sys.executable, *fetch, f"torch=={word}"], check=True)
            record(next(Path(folder).glob("*.whl")))


if __name__ == "__main__":
    main()
