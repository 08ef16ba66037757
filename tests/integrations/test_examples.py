"""The examples of training libraries do as their readers are told."""

from __future__ import annotations

import runpy
import sys
import warnings
from pathlib import Path

import pytest

import profiler_ext
from tests.integrations.training import one_rank, steps

pytestmark = pytest.mark.whole

__all__ = ["one_rank"]

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("library", "folder"), [("huggingface", "."), ("lightning", "."), ("accelerate", "rank_0")]
)
def test_an_example_records_the_two_steps_that_it_asks_for(
    library: str,
    folder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = EXAMPLES / f"train_{library}.py"
    monkeypatch.setattr(sys, "argv", [str(path)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the libraries use of each other
        pytest.importorskip("transformers" if library == "huggingface" else library)
        runpy.run_path(str(path))["main"](str(tmp_path))
    profiler_ext.disable()
    assert steps(tmp_path / folder) == [5, 6]
    assert profiler_ext.load(tmp_path / folder).report("module") in capsys.readouterr().out
