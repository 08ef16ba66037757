"""How a test runs a script under ``profiler-ext run`` in this process."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from profiler_ext import cli
from profiler_ext.run import profiled_program
from profiler_ext.sessions.session import Session, load
from profiler_ext.source_paths import folder_of

HEAD = """\
import sys
import torch
model = torch.nn.Linear(4, 4)
sgd = torch.optim.SGD(model.parameters(), lr=0.1)
adam = torch.optim.Adam(model.parameters(), lr=0.1)
def step(*optimizers):
    model(torch.ones(2, 4)).sum().backward()
    for optimizer in optimizers or [sgd]:
        optimizer.step()
"""

Run = Callable[..., int]


class Exits:
    """Stands for ``atexit`` where the process goes on: what is left to do then is done here."""

    def __init__(self) -> None:
        self.left: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def register(self, function: Callable[..., object], *arguments: Any) -> None:
        self.left.append((function, arguments))

    def unregister(self, function: Callable[..., object]) -> None:
        self.left = [each for each in self.left if each[0] != function]

    def end(self) -> None:
        for function, arguments in reversed(self.left):
            function(*arguments)


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """End each run with its test, also where it waits for a thread, as of a pool of Inductor's."""
    ours = Exits()
    monkeypatch.setattr(profiled_program, "atexit", ours)
    yield
    ours.end()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_torch: Path, exits: None) -> Run:
    """Write a script and run it in this process, into ``out``."""
    monkeypatch.chdir(tmp_path)
    folder_of.cache_clear()  # kept for a process, whose script may change its folder
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in {"__main__", "__mp_main__"} & set(sys.modules):
        monkeypatch.setitem(sys.modules, name, sys.modules[name])

    def run(body: str, *options: str, arguments: tuple[str, ...] = ()) -> int:
        (tmp_path / "script.py").write_text(HEAD + dedent(body))
        return cli.main(["run", *options, "-o", "out", "script.py", *arguments])

    return run


def messages(capfd: pytest.CaptureFixture[str]) -> list[str]:
    """Return what was said beside the report, but for the line about an old Python."""
    lines = [line for line in capfd.readouterr().err.splitlines() if "profiler-ext: " in line]
    return [line for line in lines if "eager line attribution needs" not in line]


def out() -> Session:
    return load("out")


def steps(session: Session) -> list[int]:
    return [step.number for step in session.analysis.steps]


def refused(capfd: pytest.CaptureFixture[str], *command: str, because: str) -> None:
    """The command must fail with one sentence and without a traceback."""
    capfd.readouterr()
    assert cli.main(list(command)) == 2
    written = capfd.readouterr()
    assert written.out == ""
    assert written.err.startswith("profiler-ext: ")
    assert written.err.count("\n") == 1
    assert because in written.err
