"""Functions within a function have its file, also where another file's function is equal."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

import profiler_ext
from profiler_ext.capture.traces import stack_traces
from profiler_ext.capture.traces.stack_traces import parse_stack
from tests.capture.fx_graphs import frame_text
from tests.compiling import capture

SOURCE = """
def products(x):
    twice = lambda y: y.mm(x)
    return [twice(x), *(each.mm(x) for each in (x.t(),))]
"""


def imported(file: Path) -> Any:
    file.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_copy_of_a_module_has_its_own_lines(fresh_torch: Path, tmp_path: Path) -> None:
    profiler_ext.enable(strict=True, cpu_events=False)
    for name in ("first", "copy"):
        torch.compile(imported(tmp_path / f"{name}.py").products)(torch.randn(4, 4))
    nodes = [node for graph in capture().graphs for node in graph.nodes]
    frames = [n.lineage.stack[-1] for n in nodes if n.target == "aten.mm.default"]
    assert [(Path(frame.file).name, frame.function, frame.line) for frame in frames] == [
        ("first.py", "<lambda>", 3),
        ("first.py", "<genexpr>", 4),
        ("copy.py", "<lambda>", 3),
        ("copy.py", "<genexpr>", 4),
    ]


def test_where_no_frame_tells_which_of_two_equal_files_is_meant_none_is_claimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    either = {("/src/first.py", "products"), ("/src/copy.py", "products")}
    monkeypatch.setitem(stack_traces._OWNERS, ("/src/first.py", "<lambda>", 3), either)
    step = frame_text("/src/train.py", 1, "step", "text")
    within = frame_text("/src/first.py", 3, "<lambda>", "text")
    assert [frame.function for frame in parse_stack(step + within)] == ["step"]
