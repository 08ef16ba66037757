"""A recorded session with the lines of eager work, of the program beside it.

Python 3.12 recorded it on a CPU; it is read with any Python. To renew it, with that Python:
python -m tests.eager_session
"""

from __future__ import annotations

import gzip
import subprocess
import sys
import tempfile
from pathlib import Path

from profiler_ext.sessions.session import FILE_NAME, Session, load
from tests.cases.neutral import SUFFIX, neutral

FOLDER = Path(__file__).parent / "fixtures" / "lines"
PROGRAM = FOLDER / "train.py"
RECORDED = FOLDER / f"train{SUFFIX}"


def eager_session() -> Session:
    """Return the session; its paths are those of ``neutral``."""
    return load(RECORDED)


def record() -> None:
    """Run the program, and keep the session with neutral paths."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        command = [sys.executable, "-m", "profiler_ext", "run", "--skip", "2", "-o", str(out)]
        subprocess.run([*command, PROGRAM.name], check=True, cwd=FOLDER)
        text = neutral(gzip.decompress((out / FILE_NAME).read_bytes()))
    RECORDED.write_bytes(gzip.compress(text, 9, mtime=0))


if __name__ == "__main__":
    record()
