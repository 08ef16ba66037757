"""Hooks wait for torch's compiler, which nothing of ours imports, and no import feels them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from profiler_ext.capture.hooks import installing
from profiler_ext.capture.hooks.installing import DeferredHooks
from profiler_ext.errors import CaptureWarning, TorchCapabilityError
from profiler_ext.isolation.guard import Guard

SCRIPT = """
import sys, time, torch, profiler_ext
profiler_ext.enable(strict=True)
assert not [name for name in sys.modules if name.startswith(("torch._dynamo.", "torch._inductor."))]
model = torch.nn.Linear(4, 4, bias=False)  # a library call, which needs no C++ compiler
torch.compile(model)(torch.ones(2, 4)).backward(torch.ones(2, 4))
from profiler_ext.profiling import switch
capture = switch.current()
print([(graph.is_backward, graph.cache_state.value, bool(graph.nodes)) for graph in capture.graphs])
kinds = {each.kind.value for each in capture.compiles_since(time.time_ns())}
print(capture.all_gaps, kinds >= {"frame"})
profiler_ext.disable()
print([type(finder).__name__ for finder in sys.meta_path if "Arrivals" in type(finder).__name__])
"""


def ran(folder: Path, script: str, *words: str) -> str:
    (folder / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, *words, "script.py"],
        cwd=folder,
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.whole
def test_a_program_that_imports_the_compiler_later_is_captured_all_the_same(tmp_path: Path) -> None:
    graphs, printed, left = ran(tmp_path, SCRIPT).splitlines()
    assert graphs == "[(False, 'miss', True), (True, 'miss', True)]"
    assert (printed, left) == ("() True", "[]")


PLAIN = """
import sys, torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters())
for _ in range(12):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
print("torch._inductor.compile_fx" in sys.modules)
"""
AHEAD = """
import sys, torch
with torch._dynamo.config.patch(enable_aot_compile=True):
    compiled = torch.compile(torch.mm, fullgraph=True)  # a library call
    made = compiled.aot_compile(((torch.ones(4, 4), torch.ones(4, 4)), {}))
made.save_compiled_function("mm.bin")
"""
LOADED = """
import torch, profiler_ext
profiler_ext.enable(strict=True)
with open("mm.bin", "rb") as file:
    torch.compiler.load_compiled_function(file)(torch.ones(4, 4), torch.ones(4, 4))
from profiler_ext.profiling import switch
print([bool(graph.nodes) for graph in switch.current().graphs], switch.current().all_gaps)
"""


def test_a_run_of_a_program_that_compiles_nothing_imports_no_inductor(tmp_path: Path) -> None:
    first, *_ = ran(tmp_path, PLAIN, "-m", "profiler_ext", "run").splitlines()
    assert first == "False"
    assert (tmp_path / "profile_out" / "session.pt.trace.json.gz").is_file()


@pytest.mark.whole
def test_what_was_compiled_ahead_of_time_is_captured_without_the_rest_of_inductor(
    tmp_path: Path,
) -> None:
    ran(tmp_path, AHEAD)
    assert ran(tmp_path, LOADED) == "[True] ()\n"


@pytest.fixture
def holders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, ...]]:
    """Two modules that import each other: one of them is not whole when the other is."""
    names = ("pxe_holder", "pxe_awaited")
    (tmp_path / "pxe_holder.py").write_text("import pxe_awaited\nplace = 1\n")
    (tmp_path / "pxe_awaited.py").write_text("import pxe_holder\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(installing, "_HOOKED_MODULES", names)
    yield names
    for name in names:
        sys.modules.pop(name, None)


def places(name: str) -> bool:
    return hasattr(sys.modules[name], "place")


@pytest.mark.parametrize("first", [0, 1])
def test_hooks_are_put_in_place_once_and_when_all_places_are_whole(
    holders: tuple[str, ...], first: int
) -> None:
    seen: list[bool] = []
    waiting = DeferredHooks(
        [(holders[1], lambda: seen.append(places(holders[0])))], Guard(strict=True), print
    )
    before = list(sys.meta_path)
    waiting.install()
    assert (seen, waiting.is_pending) == ([], True)
    import_module(holders[first])
    assert (seen, waiting.is_pending, sys.meta_path) == ([True], False, before)
    assert "Told" not in type(sys.modules[holders[1]].__spec__.loader).__name__


def test_what_is_there_is_put_in_place_at_once_and_all_else_on_demand(
    holders: tuple[str, ...],
) -> None:
    done: list[str] = []
    waited = [(name, lambda name=name: done.append(name)) for name in ("sys", holders[1])]
    waiting = DeferredHooks(waited, Guard(strict=True), print)
    waiting.install()
    assert done == ["sys"]
    waiting.install_all()
    assert (done, waiting.is_pending) == (["sys", holders[1]], False)


def test_of_threads_that_ask_at_once_one_imports_and_the_others_wait(
    holders: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / f"{holders[1]}.py").write_text("import time; time.sleep(0.05); whole = True\n")
    seen: list[bool] = []
    waiting = DeferredHooks([(holders[1], lambda: seen.append(True))], Guard(strict=True), print)

    def ask() -> None:
        waiting.install_all()
        seen.append(hasattr(sys.modules[holders[1]], "whole"))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True, True, True]


def test_what_ended_the_import_of_a_part_does_not_lose_the_part() -> None:
    waiting = DeferredHooks([("no_such_module", print)], Guard(strict=True), print)
    with pytest.raises(ModuleNotFoundError):
        waiting.install_all()
    assert waiting.is_pending


def capability_error() -> None:
    raise TorchCapabilityError("it lacks a place")


def broken() -> None:
    raise RuntimeError("broken on purpose")


def test_no_import_fails_for_a_torch_that_does_not_fit_or_a_failure_of_ours(
    holders: tuple[str, ...],
) -> None:
    unfit: list[Exception] = []
    waiting = DeferredHooks([(holders[1], capability_error)], Guard(strict=True), unfit.append)
    waiting.install()
    import_module(holders[1])
    assert ([str(error) for error in unfit], waiting.is_pending) == (
        ["it lacks a place"],
        False,
    )
    for name in holders:
        sys.modules.pop(name)
    guard = Guard()
    DeferredHooks([(holders[1], broken)], guard, unfit.append).install()
    with pytest.warns(CaptureWarning, match="broken on purpose"):
        module: Any = import_module(holders[1])
    assert (module.__name__, [each.hook for each in guard.failures]) == (holders[1], ["arrivals"])


def test_a_further_part_is_installed_after_those_that_wait_for_its_module(
    holders: tuple[str, ...],
) -> None:
    done: list[str] = []
    waiting = DeferredHooks([(holders[1], lambda: done.append("first"))], Guard(strict=True), print)
    waiting.install()
    waiting.add(holders[1], lambda: done.append("second"))
    assert done == []
    import_module(holders[1])
    assert done == ["first", "second"]
    waiting.add(holders[1], lambda: done.append("third"))
    assert done == ["first", "second", "third"]
