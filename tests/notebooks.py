"""How a test runs cells: in IPython in this process, or in the kernel that Jupyter starts."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from tests.patience import patience_s

ROOT = Path(__file__).parents[1]


class Notebook:
    """Cells that are run one after the other."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    def run(self, cell: str) -> None:
        """Run a cell; what it raises is raised."""
        self._shell.run_cell(cell, store_history=True).raise_error()

    def __getitem__(self, name: str) -> Any:
        """Return what the cells call so."""
        return self._shell.user_ns[name]


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    """A notebook in this process, which is as before when the test is over."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    for name in ("__main__", "builtins"):
        monkeypatch.setitem(sys.modules, name, sys.modules[name])
    kept = sys.excepthook, sys.displayhook
    no_history = Config({"HistoryManager": {"enabled": False}})
    shell = InteractiveShell.instance(config=no_history)
    yield Notebook(shell)
    InteractiveShell.clear_instance()
    sys.excepthook, sys.displayhook = kept


def printed(cells: Sequence[str], cache: Path) -> Any:
    """Run cells in a kernel of Jupyter's; return what the last one prints as JSON."""
    import nbformat
    from nbclient import NotebookClient

    codes = [nbformat.v4.new_code_cell(source) for source in cells]
    page = nbformat.v4.new_notebook(cells=codes)
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "IPYTHONDIR": str(cache / "ipython"),
    }
    NotebookClient(page, timeout=patience_s(120), kernel_name="python3").execute(env=environment)
    texts = [each["text"] for each in page.cells[-1]["outputs"] if each.get("name") == "stdout"]
    return json.loads("".join(texts).splitlines()[-1])
