"""After an export the command line says how to see it, with TensorBoard there or not."""

import subprocess
import sys

import pytest

from profiler_ext import cli
from tests.tensorboard.sessions import RECORDED, ROOT

GET = (
    "profiler-ext: TensorBoard is not installed into this Python; "
    "get it with: pip install 'profiler-ext[tensorboard]'"
)
WITHOUT = """
import sys
sys.modules |= dict.fromkeys(("tensorboard", "torch_tb_profiler", "werkzeug"))
from profiler_ext import cli
sys.exit(cli.main(sys.argv[1:]))
"""


def see(folder) -> str:
    return f"profiler-ext: see it with: tensorboard --logdir '{folder}'"


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_an_export_says_how_to_see_it(tmp_path, capsys):
    pytest.importorskip("tensorboard")
    target = tmp_path / "my logs"
    assert cli.main(["export", str(RECORDED), "-o", str(target)]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{target / 'rank0.pt.trace.json.gz'}\n"
    assert printed.err == f"{see(target)}\n"
    assert names(target) == ["rank0.attribution.json.gz", "rank0.pt.trace.json.gz"]


def test_without_tensorboard_it_is_written_all_the_same_and_says_what_to_install(tmp_path):
    target = tmp_path / "my logs"
    command = [sys.executable, "-c", WITHOUT, "export", str(RECORDED)]
    done = subprocess.run(
        [*command, "-o", str(target)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.splitlines()) == (0, [GET, see(target)])
    assert names(target) == ["rank0.attribution.json.gz", "rank0.pt.trace.json.gz"]
