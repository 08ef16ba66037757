"""The recording of the tables: what torch has of the names that torch_compat stands on.

python -m tests.symbols 2.11.0 2.12.1 ...      fetches each wheel (0.5 GB) and reads its source
python -m tests.symbols PATH ...               reads wheels or site-packages folders at hand

Each torch has its table in tests/fixtures/symbols. Record all of them anew when torch_compat
stands on another name.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
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


def main() -> str | None:
    """Record each; return why one cannot be, in a sentence."""
    for word in sys.argv[1:]:
        try:
            record(Path(word)) if Path(word).exists() else _record_fetched(word)
        except subprocess.CalledProcessError as error:
            return (
                f"pip did not fetch torch {word}: {_reason(error.stderr)}; give a version that "
                "PyPI has, or a wheel or a site-packages folder at hand"
            )
        except (LookupError, SyntaxError, zipfile.BadZipFile) as error:
            return (
                f"{word} has no table ({error}); expected a wheel of torch or a site-packages "
                "folder, with all names that torch_compat stands on"
            )
    return None


def _record_fetched(version: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        fetch = ("-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder)
        command = [sys.executable, *fetch, f"torch=={version}"]
        subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True)
        record(next(Path(folder).glob("*.whl")))


def _reason(reported: str) -> str:
    """Return pip's own reason, its first error, without the list of all versions."""
    lines = [
        line.removeprefix("ERROR: ") for line in reported.splitlines() if line.startswith("ERROR")
    ]
    return lines[0].partition(" (from versions")[0].rstrip(".") if lines else "it does not say why"


if __name__ == "__main__":
    sys.exit(main())
