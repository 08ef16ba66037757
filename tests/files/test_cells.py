"""A notebook's cell is known by its number here, and by its text in every process."""

from __future__ import annotations

import pytest

from profiler_ext.python_lines.program_code import ProgramCode
from profiler_ext.source_paths import (
    absolute,
    cell_file,
    cell_lines,
    cell_number,
    expand,
    line_is_unchanged,
    name_by_text,
    shorten,
)
from tests.notebooks import Notebook, notebook

__all__ = ["notebook"]

FUNCTION = "def f(x):\n    y = x + 1\n    return y"


@pytest.fixture
def file(notebook: Notebook) -> str:
    """What the code of the second cell names as its file."""
    notebook.run("import math")
    notebook.run(FUNCTION)
    return notebook["f"].__code__.co_filename


def test_a_cell_has_its_number_and_its_lines(file: str):
    assert (cell_number(file), cell_lines(file)) == (2, tuple(FUNCTION.split("\n")))


def test_the_kernels_temporary_file_is_the_cell_that_it_says(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
):
    from ipykernel.compiler import XCachingCompiler

    compiler = XCachingCompiler()
    monkeypatch.setattr(notebook["get_ipython"](), "compile", compiler)
    file = compiler.cache(FUNCTION, 7)
    assert "ipykernel_" in file
    assert cell_number(file) == 7
    compiler.cache(FUNCTION, 9)  # it is run again
    assert cell_number(file) == 9


@pytest.mark.parametrize("other", ["<string>", "<stdin>", "/tmp/ipykernel_1/2.py", "In[3]", ""])
def test_what_is_no_cell_has_no_number(file: str, other: str):
    assert (cell_number(other), name_by_text(other), cell_file(other)) == (None, None, None)


def test_a_cell_is_kept_by_its_text_and_found_again(file: str):
    kept = shorten(absolute(file))
    assert kept == "cell-64e21e296fbd"
    assert expand(kept) == file


def test_of_two_cells_with_one_text_the_last_is_found(notebook: Notebook, file: str):
    notebook.run(FUNCTION)
    again = notebook["f"].__code__.co_filename
    assert again != file
    assert expand(shorten(file)) == again


def test_a_cell_of_another_process_stays_unknown(file: str):
    assert expand("cell-000000000000") == "cell-000000000000"


def test_a_cells_recorded_line_still_stands_where_its_text_ran(file: str):
    kept = shorten(file)
    assert line_is_unchanged(kept, 2, "y = x + 1")
    assert not line_is_unchanged(kept, 2, "y = x + 2")
    assert not line_is_unchanged("cell-000000000000", 2, "y = x + 1")


def test_a_cell_is_the_programs_code_and_what_runs_it_is_not(file: str):
    code = ProgramCode(())
    assert code.holds(file, "__main__")
    assert not code.holds("<string>", "__main__")
    assert not code.holds("/a/IPython/core/interactiveshell.py", "IPython.core.interactiveshell")
