"""After an export the command line says how to see it, with TensorBoard there or not."""

import pytest

from exporters.tensorboard_plugin import viewing
from profiler_ext import cli
from tests.tensorboard.sessions import RECORDED

SEE = "profiler-ext: see it with: tensorboard --logdir '{}'"
GET = (
    "profiler-ext: TensorBoard is not installed into this Python; "
    "get it with: pip install tensorboard torch-tb-profiler"
)


@pytest.mark.parametrize("is_installed", [True, False])
def test_an_export_says_how_to_see_it(tmp_path, capsys, monkeypatch, is_installed):
    spec = object() if is_installed else None
    monkeypatch.setattr(viewing, "find_spec", {"tensorboard": spec}.get)
    target = tmp_path / "my logs"
    assert cli.main(["export", str(RECORDED), "--to", "tensorboard", "-o", str(target)]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{target / 'rank0.pt.trace.json.gz'}\n"
    see = SEE.format(target)
    assert printed.err.splitlines() == ([see] if is_installed else [GET, see])
    assert sorted(path.name for path in target.iterdir()) == [
        "rank0.attribution.json.gz",
        "rank0.pt.trace.json.gz",
    ]
