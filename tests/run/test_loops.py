"""How many steps a program's loops have: read from the loops that run, never guessed."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent, indent

import pytest

from profiler_ext.run.loops import expected_steps


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("here()", 1),
        ("for n in range(3): here()", 3),
        ("for n in range(2, 9, 3):\n    for m in range(options.steps):\n        here()", 12),
        ("items = [1, 2]\nfor n, item in enumerate(\n    items\n):\n    here()", 2),
        ("for n in range(3):\n    break\nhere()", 1),
        ("n = 0\nwhile n < 3:\n    n += 1\n    here()", None),
        ("for n in iter(range(3)): here()", None),
        ("for n in range(3):\n    for m in map(int, '12'): here()", None),
    ],
)
@pytest.mark.parametrize("is_in_function", [False, True])
def test_steps_of_the_loops_that_run(
    program: str, expected: int | None, is_in_function: bool, tmp_path: Path
) -> None:
    if is_in_function:
        program = "def train():\n" + indent(program, "    ") + "\ntrain()\n"
    seen = run(program, tmp_path)
    assert set(seen) == {expected}


def test_of_a_program_whose_source_is_gone_nothing_is_expected(tmp_path: Path) -> None:
    assert run("for n in range(3): here()", tmp_path, is_written=False) == [None] * 3


def test_a_data_loader_has_a_length_if_its_data_set_has(tmp_path: Path) -> None:
    program = """
    from torch.utils.data import DataLoader, IterableDataset
    class Endless(IterableDataset):
        def __iter__(self): yield from range(2)
    loader, endless = DataLoader([1, 2, 3, 4], batch_size=2), DataLoader(Endless())
    for epoch in range(2):
        for batch in loader: here()
    for item in endless: here()
    """
    assert run(dedent(program), tmp_path) == [4, 4, 4, 4, None, None]


def run(program: str, folder: Path, *, is_written: bool = True) -> list[int | None]:
    path = folder / "program.py"
    if is_written:
        path.write_text(program)
    seen: list[int | None] = []
    here: Callable[[], None] = lambda: seen.append(expected_steps())  # noqa: E731
    options = argparse.Namespace(steps=4)
    names = {"__name__": "__main__", "here": here, "options": options}
    exec(compile(program, str(path), "exec"), names)
    return seen
