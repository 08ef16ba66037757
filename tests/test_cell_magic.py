"""``%load_ext profiler_ext`` gives a notebook the cell magic ``%%profile_ext``."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.error import UsageError

import profiler_ext
from profiler_ext.sessions.session import Session
from tests.compiling import fresh_torch
from tests.notebooks import Notebook, notebook
from tests.watched import needs_lines

__all__ = ["fresh_torch", "notebook"]

BEGIN = """%load_ext profiler_ext
import torch
a, b = torch.randn(8, 8, requires_grad=True), torch.randn(8, 8)
runs = []"""
STEP = """%%profile_ext
runs.append(1)
loss = (a @ b).sum()
loss.backward()"""


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the magic displays."""
    from profiler_ext.integrations import ipython

    displayed: list[Any] = []
    monkeypatch.setattr(ipython, "display", displayed.append)
    return displayed


@pytest.fixture
def begun(notebook: Notebook, shown: list[Any], fresh_torch: Path) -> Iterator[Notebook]:
    """A notebook with the extension, in a process that has compiled nothing."""
    notebook.run(BEGIN)
    yield notebook
    profiler_ext.disable()


def test_a_cell_is_one_step_and_shows_its_session(begun: Notebook, shown: list[Any]) -> None:
    begun.run(STEP)
    session = begun["profile"]
    assert isinstance(session, Session) and shown == [session]
    assert (len(session.analysis.steps), len(begun["runs"])) == (1, 1)
    assert set(session.by_op().aten_op) >= {"aten::mm", "aten::sum"}
    assert session._repr_html_().startswith("<div>")


def test_a_compiled_line_of_the_cell_has_the_number_that_the_notebook_shows(
    begun: Notebook, fresh_torch: Path
) -> None:
    begun.run("""%%profile_ext -v mine
@torch.compile
def twice(a, b):
    return a @ b @ b

twice(a, b).sum().backward()""")
    lines = begun["mine"].by_line(scope="compiled")
    assert {*zip(lines.file, lines.line, lines.code, strict=True)} == {
        ("In[2]", 4, "return a @ b @ b")
    }
    texts = {cell.name: cell.lines for cell in begun["mine"].recording.cells}
    assert texts["In[2]"][0] == "# %%profile_ext -v mine"


@needs_lines
def test_an_eager_line_of_the_cell_has_the_number_that_the_notebook_shows(
    begun: Notebook,
) -> None:
    begun.run(STEP)
    lines = begun["profile"].by_line(scope="eager")
    found = {*zip(lines.file, lines.line, lines.code, strict=True)}
    assert {("In[2]", 3, "loss = (a @ b).sum()"), ("In[2]", 4, "loss.backward()")} & found


def test_a_cell_can_end_its_steps_itself(begun: Notebook) -> None:
    begun.run("""%%profile_ext
for _ in range(3):
    (a @ b).sum().backward()
    prof.step()""")
    assert len(begun["profile"].analysis.steps) == 3
    with pytest.raises(KeyError):
        begun["prof"]


def test_a_cell_is_run_for_each_skipped_and_recorded_step(begun: Notebook) -> None:
    begun.run(STEP.replace("%%profile_ext", "%%profile_ext --skip 2 --steps 3"))
    assert (len(begun["runs"]), len(begun["profile"].analysis.steps)) == (5, 3)


def test_a_session_can_be_saved_without_source(
    begun: Notebook, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun.run(STEP.replace("%%profile_ext", f"%%profile_ext --no-source -o '{tmp_path / 'a b'}'"))
    assert str(tmp_path / "a b") in capsys.readouterr().out
    read = profiler_ext.load(tmp_path / "a b")
    assert len(read.analysis.steps) == 1
    assert not any(cell.lines for cell in read.recording.cells)


def test_the_last_value_of_the_cell_is_shown_as_always(
    begun: Notebook, capsys: pytest.CaptureFixture[str]
) -> None:
    begun.run("%%profile_ext\n1 + 1\n2 + a.numel()")
    assert capsys.readouterr().out.endswith("Out[2]: 66\n")


def test_a_failing_cell_shows_its_own_line(begun: Notebook) -> None:
    with pytest.raises(ValueError, match="mine") as raised:
        begun.run("%%profile_ext\nx = 1\nraise ValueError('mine')")
    last = raised.traceback[-1]
    assert last.lineno + 1 == 3
    assert linecache.getline(str(last.frame.code.raw.co_filename), 3) == (
        "raise ValueError('mine')\n"
    )
    begun.run(STEP)  # the profiler was ended
    assert len(begun["profile"].analysis.steps) == 1


def test_another_variable_is_not_overwritten(begun: Notebook) -> None:
    begun.run("from profiler_ext import profile\nprof = 'mine'")
    with pytest.raises(UsageError, match="choose a name for the session with -v NAME"):
        begun.run(STEP)
    assert begun["profile"] is profiler_ext.profile and begun["runs"] == []
    begun.run(STEP.replace("%%profile_ext", "%%profile_ext -v step"))
    assert isinstance(begun["step"], Session) and begun["prof"] == "mine"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--nonsense", "unrecognized arguments: --nonsense"),
        ("-v 2x", "a variable's name is expected"),
        ("--steps 0", "--steps 1 or more"),
    ],
)
def test_a_wrong_option_is_refused_before_the_cell_runs(
    begun: Notebook, options: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        begun.run(STEP.replace("%%profile_ext", f"%%profile_ext {options}"))
    assert begun["runs"] == []
