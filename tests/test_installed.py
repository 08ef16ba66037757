"""What an installed copy does at the start of every Python process."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

OURS_OR_HEAVY = '{"torch", "profiler_ext", "numpy"} & set(sys.modules)'


@pytest.fixture(autouse=True)
def installed_copy():
    try:
        files = importlib.metadata.files("profiler-ext") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    if "profiler_ext_autostart.pth" not in {file.name for file in files}:
        pytest.skip("profiler-ext is not installed into this Python")


def python(code: str, folder, **variables: str) -> str:
    """Run code away from the checkout; return what it printed."""
    clean = {name: text for name, text in os.environ.items() if name != "PROFILER_EXT"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=folder,
        env=clean | variables,
        check=False,
    )
    return done.stdout + done.stderr


def test_asked_for_by_the_environment_capture_is_on_once_torch_is_there(tmp_path):
    code = "import torch; from profiler_ext.profiling.switch import current; print(bool(current()))"
    assert python(code, tmp_path, PROFILER_EXT="1") == "True\n"


def test_asked_for_it_leaves_a_process_without_torch_nothing(tmp_path):
    code = f"import sys; print({OURS_OR_HEAVY})"
    assert python(code, tmp_path, PROFILER_EXT="1") == "set()\n"


@pytest.mark.parametrize("variables", [{}, {"PROFILER_EXT": "0"}, {"PROFILER_EXT": ""}])
def test_not_asked_for_nothing_is_imported(tmp_path, variables):
    assert python(f"import sys; print({OURS_OR_HEAVY})", tmp_path, **variables) == "set()\n"


def test_a_torch_that_does_not_fit_is_a_warning_and_no_failed_import(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("there = True\n")
    code = "import torch; print(torch.there)"
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[1])])
    printed = python(code, tmp_path, PROFILER_EXT="1", PYTHONPATH=path)
    assert "UserWarning: profiler_ext is off in this process: " in printed
    assert "True\n" in printed
    assert "Traceback" not in printed
