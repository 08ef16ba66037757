"""Something is done as soon as torch is imported: once, and whoever asks where torch is first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BEGIN = """
import importlib.util, sys
from profiler_ext.autostart import on_torch_import
on_torch_import(lambda: print("there", sys.modules["torch"].whole))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with another torch, that is imported in no time."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "import importlib.util\nimportlib.util.find_spec('torch')\nwhole = True\n"
    )
    return tmp_path


def python(folder: Path, code: str) -> str:
    path = {"PYTHONPATH": f"{folder}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + code],
        capture_output=True,
        text=True,
        env=path,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "import torch; import torch",
        "importlib.util.find_spec('torch'); import torch",  # as transformers asks
        "import torch; del sys.modules['torch']; import torch",
        "from profiler_ext import autostart; autostart.start(); import torch",
    ],
)
def test_it_is_done_once(folder: Path, code: str) -> None:
    lines = python(folder, code).splitlines()
    assert lines[0] == "there True"
    assert len([line for line in lines if line.startswith("there")]) == 1


def test_torch_is_as_it_would_be_without_us(folder: Path) -> None:
    code = (
        "import torch; print(type(torch.__spec__.loader).__name__, torch.__loader__.path, "
        "len([f for f in sys.meta_path if 'profiler_ext' in type(f).__module__]))"
    )
    loaded = f"SourceFileLoader {folder}/torch/__init__.py 0"
    assert python(folder, code).splitlines() == ["there True", loaded]


def test_nothing_is_done_without_torch(folder: Path) -> None:
    assert python(folder, "import json") == ""


def test_what_fails_then_is_a_warning_and_no_failed_import(folder: Path) -> None:
    code = "on_torch_import(lambda: 1 / 0); import torch; print(torch.whole)"
    printed = python(folder, code)
    assert "UserWarning: profiler_ext is off in this process: division by zero" in printed
    assert "True" in printed.splitlines()
    assert "Traceback" not in printed


def test_a_torch_that_cannot_be_imported_fails_as_ever_and_may_be_tried_again(folder: Path) -> None:
    (folder / "torch" / "__init__.py").write_text(
        "import builtins\nbuiltins.tries = getattr(builtins, 'tries', 0) + 1\n"
        "if builtins.tries == 1: raise OSError('libcudart')\nwhole = True\n"
    )
    code = "try:\n    import torch\nexcept OSError as error: print(error)\nimport torch"
    assert python(folder, code).splitlines() == ["libcudart", "there True"]
