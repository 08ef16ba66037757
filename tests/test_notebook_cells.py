"""What runs in a notebook is told by cell and line, `In[3]:9`, with the text of the cell."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import profiler_ext
from profiler_ext.exporters.html.data import report_data
from profiler_ext.exporters.sources import local_sources
from profiler_ext.isolation.guard import Guard
from profiler_ext.kineto.recording import read_recording
from profiler_ext.profiling.assembly import with_cells
from profiler_ext.records.recording import MAX_CELL_LINE_LENGTH, Cell, Recording
from profiler_ext.records.stored import without_source
from profiler_ext.sessions.session import Session
from tests.analyses import gpu_step
from tests.compiling import fresh_torch
from tests.notebooks import Notebook, notebook, printed
from tests.watched import needs_lines

__all__ = ["fresh_torch", "notebook"]

IMPORTS = """import json
import torch, profiler_ext
profiler_ext.enable(cpu_events=True)
torch.manual_seed(0)
a, b = torch.randn(8, 8, requires_grad=True), torch.randn(8, 8)"""
MODEL = """def twice(a, b):
    first = a @ b
    return first @ b

compiled = torch.compile(twice)"""
STEP = """compiled(a, b).sum().backward()
with profiler_ext.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
    compiled(a, b).sum().backward()
    prof.step()"""
CELLS = (IMPORTS, MODEL, STEP)
LINES = [("In[2]", 2, "first = a @ b"), ("In[2]", 3, "return first @ b")]


def lines(session: Session, scope: str = "compiled") -> list[tuple[Any, ...]]:
    """File, line and text of each row of time."""
    rows = session.by_line(scope=scope).sort_values("line")
    return list(rows[["file", "line", "code"]].itertuples(index=False, name=None))


@pytest.fixture
def session(notebook: Notebook, fresh_torch: Path) -> Session:
    """A step of the cells."""
    for cell in CELLS:
        notebook.run(cell)
    session: Session = notebook["prof"].session
    return session


def test_a_compiled_line_of_a_cell_is_reported_wherever_a_line_is(session: Session) -> None:
    assert lines(session) == LINES
    users = session.attribution().query("file == 'In[2]'")
    assert (users.user_file == users.file).all()
    compiles = {(c.file, c.line) for c in session.recording.compiles if c.function == "twice"}
    assert compiles == {("In[2]", 1)}
    # By line: the first screen leaves out lines below 1% of a step, as one of these may be.
    assert "In[2]:3" in session.report(by="line")
    assert session.explain("In[2]:3").startswith("In[2]:3 · line")


def test_the_session_has_the_text_of_its_cells(session: Session, tmp_path: Path) -> None:
    read = Session(read_recording(session.save(tmp_path)))
    texts = {cell.name: "\n".join(cell.lines) for cell in read.recording.cells}
    assert texts["In[2]"] == MODEL
    assert lines(read) == LINES
    assert "compiled = torch.compile(twice)" in read.annotate("In[2]")
    files = report_data([read.analysis], local_sources([read.analysis]))[0]["files"]
    assert "compiled = torch.compile(twice)" in json.dumps(files)
    bare = without_source(read.recording)
    assert set(bare.cells) == {Cell(name) for name in texts}
    assert "the text of the cell is not in the session" in Session(bare).annotate()


@needs_lines
def test_an_eager_line_of_a_cell_is_reported(session: Session) -> None:
    assert ("In[3]", 3, "compiled(a, b).sum().backward()") in lines(session, "eager")


def test_cells_that_ran_again_after_an_edit_match_by_their_text(
    notebook: Notebook, session: Session
) -> None:
    notebook.run(
        MODEL.replace("    return first @ b", "    third = first @ first\n    return third @ b")
    )
    notebook.run(STEP)
    again = notebook["prof"].session
    assert [line[:2] for line in lines(again)] == [("In[4]", 2), ("In[4]", 3), ("In[4]", 4)]
    changed = profiler_ext.diff(session, again).table("line")
    device = changed.query("account == 'device' and head_file == 'In[4]'")
    matched = device.sort_values("head_line")[["base_line", "head_line", "match"]]
    assert matched.astype(object).where(matched.notna(), None).to_numpy().tolist() == [
        [2, 2, "same"],
        [None, 3, "new"],
        [3, 4, "edited"],
    ]


def test_a_kernel_of_jupyters_tells_the_same(tmp_path: Path) -> None:
    message = """session = prof.session
rows = session.by_line(scope="compiled").sort_values("line")[["file", "line", "code"]]
texts = {cell.name: "\\n".join(cell.lines) for cell in session.recording.cells}
first = session.report(verbose=True).split(" ")[0]
print(json.dumps([rows.to_numpy().tolist(), texts["In[2]"], first]))"""
    assert printed([*CELLS, message], tmp_path) == [[*map(list, LINES)], MODEL, "notebook"]


def test_a_recording_without_cells_stays_as_it_is(notebook: Notebook) -> None:
    recording = gpu_step().recording
    assert with_cells(recording, Guard(strict=True)) is recording


def test_text_that_nobody_wrote_is_cut_or_left_out(notebook: Notebook) -> None:
    def kept(text: str) -> tuple[str, ...]:
        notebook.run(text)
        file = notebook["f"].__code__.co_filename
        graph = gpu_step().recording.graphs[0]
        frame = replace(graph.nodes[0].lineage.stack[-1], file=file)
        node = replace(graph.nodes[0], lineage=replace(graph.nodes[0].lineage, stack=(frame,)))
        recording = Recording(gpu_step().recording.trace, (replace(graph, nodes=(node,)),))
        (cell,) = with_cells(recording, Guard(strict=True)).cells
        return cell.lines

    long = "def f(): pass\nx = '" + "x" * MAX_CELL_LINE_LENGTH + "'"
    assert [len(line) for line in kept(long)] == [13, MAX_CELL_LINE_LENGTH]
    assert kept("def f(): pass" + "\n" * 20_000 + "x = 1") == ()
