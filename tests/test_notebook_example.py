"""The worked notebook is valid, was run, and its cells run here, without Jupyter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.whole

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
RUN = """
import json, sys
space = {"__name__": "__main__"}
for source in json.load(sys.stdin):
    exec(source, space)
prof = space["prof"]
print(json.dumps([len(prof.session.analysis.steps), prof._repr_html_(), prof.annotate("mlp.py")]))
"""


def cells():
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]


def code_cells():
    return [cell for cell in cells() if cell["cell_type"] == "code"]


def test_it_is_a_notebook_of_format_4():
    document = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (document["nbformat"], document["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in cells()}) == len(cells())


def test_its_cells_were_run_in_order():
    assert [cell["execution_count"] for cell in code_cells()] == list(
        range(1, len(code_cells()) + 1)
    )
    kinds = {output["output_type"] for cell in code_cells() for output in cell["outputs"]}
    assert kinds == {"execute_result", "stream"}
    assert NOTEBOOK.stat().st_size < 64_000


def test_its_cells_run(tmp_path):
    sources = ["".join(cell["source"]) for cell in code_cells()]
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps(sources),
        cwd=NOTEBOOK.parent,
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join((str(ROOT), ".")),
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path),  # not what ran here without capture
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    steps, html, source = json.loads(done.stdout.splitlines()[-1])
    assert steps == 3
    assert "compiled: attributed to source" in html
    assert "h = F.gelu(self.up(x))" in html
    assert "def forward(self, x: torch.Tensor) -> torch.Tensor:" in source
