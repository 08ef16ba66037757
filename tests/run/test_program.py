"""A program is read as Python reads it."""

import subprocess
import sys
from pathlib import Path


def test_a_script_from_a_pipe_is_run(tmp_path: Path) -> None:
    script = "import sys; print(sys.argv[1:], __name__); sys.exit(4)"
    command = f"{sys.executable} -m profiler_ext run -o {tmp_path / 'out'} <(echo '{script}') a b"
    finished = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stdout) == (4, "['a', 'b'] __main__\n")
