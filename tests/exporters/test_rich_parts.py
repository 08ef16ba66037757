"""Rich is imported wherever the process is, and the process has its own ``os.getcwd`` after."""

import subprocess
import sys
from pathlib import Path

import pytest

from profiler_ext.sessions.session import Session
from tests.analyses import gpu_step

GONE = """
import errno, os, sys
import profiler_ext

def gone():
    raise OSError(errno.{error}, os.strerror(errno.{error}))

session, os.getcwd = profiler_ext.load(sys.argv[1]), gone
session.export(sys.argv[1] + "/report.html")
assert os.getcwd is gone
assert "rich" in sys.modules
"""


@pytest.mark.parametrize("error", ["ESTALE", "ENOENT", "EACCES"])
def test_a_report_is_written_where_the_working_folder_cannot_be_reached(
    tmp_path: Path, error: str
) -> None:
    Session(gpu_step().recording).save(tmp_path)
    subprocess.run([sys.executable, "-c", GONE.format(error=error), str(tmp_path)], check=True)
    assert "</html>" in (tmp_path / "report.html").read_text()
