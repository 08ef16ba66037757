"""Dynamo's code has lines of the program's that it does not run: none of them is told."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import profiler_ext
from profiler_ext.python_lines.program_code import borrowed_lines, resumes
from tests.compiling import fresh_torch
from tests.watched import needs_lines
from verification.eager_lines.seeing import briefly, seen

__all__ = ["fresh_torch"]

pytestmark = [
    needs_lines,
    pytest.mark.usefixtures("fresh_torch"),
    pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),  # torch's own
]


@torch._dynamo.disable
def apart(x: Any) -> Any:
    return x.tanh()  # line: apart


class Broken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)

    def forward(self, x: Any) -> Any:
        up = self.up(x).relu()  # line: up
        scale = up.detach().sum().item()  # line: item
        torch._dynamo.graph_break()
        up = apart(up.sin())  # line: calls
        return self.down(up.cos()) * scale  # line: down


class Exported(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        x = self.up(x)  # line: exported
        return x.sin()  # line: exported sine


def stepping(backend: str) -> Callable[[], Any]:
    profiler_ext.enable()
    compiled: Any = torch.compile(Broken(), backend=backend)
    x = torch.ones(2, 8)

    def step() -> None:
        compiled(x).sum().backward()  # line: step

    for _ in range(3):
        step()
    return step


def test_what_a_backend_runs_op_by_op_is_at_the_line_that_it_was_traced_from() -> None:
    ops = ("linear", "relu", "item", "sin", "tanh", "cos", "mm", "threshold_backward")
    assert set(briefly(stepping("eager"), *ops)) == {
        *((op, "forward", "up") for op in ("linear", "relu")),
        ("item", "forward", "item"),
        ("sin", "forward", "calls"),
        ("tanh", "forward", "apart"),
        *((op, "forward", "down") for op in ("linear", "cos")),
        *((op, "backward", "up") for op in ("mm", "threshold_backward")),
        ("cos", "backward", "calls"),
        *((op, "backward", "down") for op in ("mm", "sin")),
    }


def test_an_exported_program_has_the_lines_of_its_model_and_modules_unknown() -> None:
    x = torch.ones(2, 8)
    program = torch.export.export(Exported(), (x,)).module()
    found = seen(lambda: program(x), "linear", "sin")
    assert [(each.op, each.line, each.module) for each in found] == [
        ("linear", "exported", None),
        ("sin", "exported sine", None),
    ]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_no_launch_is_at_a_line_that_dynamo_s_code_has_only_borrowed(backend: str) -> None:
    found = briefly(stepping(backend))
    own = {"step", "up", "item", "calls", "apart", "down"}
    assert own >= {line for _, _, line in found} >= {"step", "item"}
    sums = {line for _, phase, line in found if phase == "gradient_accumulation"}
    assert sums == ({"up", "down"} if backend == "eager" else {"step"})


class Tall(nn.Module):
    """Statements of several lines before what breaks a graph: torch's tables are off after them."""

    def forward(self, x: Any) -> Any:
        torch._dynamo.graph_break()
        y = (
            x.sin()
            .view(-1, 2)
            .repeat(1, 2)
            .flatten()
        )  # fmt: skip
        first = y.detach().sum().item()  # line: first item
        z = (
            y.cos()
            .view(-1, 2)
            .repeat(1, 2)
            .flatten()
        )  # fmt: skip
        second = apart(z).detach().mean().item()  # line: second item
        return z.sum() * first * second


def test_what_breaks_a_graph_after_statements_of_several_lines_is_at_its_own() -> None:
    profiler_ext.enable()
    compiled: Any = torch.compile(Tall(), backend="eager")
    x = torch.ones(2, 8, requires_grad=True)
    for _ in range(3):
        compiled(x).backward()
    found = seen(lambda: compiled(x).backward(), "item", "tanh")
    assert [(each.op, each.line) for each in found] == [
        ("item", "first item"),
        ("tanh", "apart"),
        ("item", "second item"),
    ]


def test_what_ran_in_code_that_dynamo_forgot_while_recording_is_at_the_line_that_calls_it() -> None:
    profiler_ext.enable()
    compiled: Any = torch.compile(Tall(), backend="eager")
    x = torch.ones(2, 8, requires_grad=True)
    for _ in range(3):
        compiled(x).backward()

    def stepping() -> None:
        compiled(x).backward()  # line: forgotten
        torch._dynamo.reset()

    found = seen(stepping, "item", "tanh")
    assert [(each.op, each.line) for each in found] == [
        ("item", "forgotten"),
        ("tanh", "apart"),
        ("item", "forgotten"),
    ]


def test_dynamo_s_code_is_known_by_calls_that_have_no_columns() -> None:
    codes: list[Any] = []
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
    step = stepping("eager")
    monitoring.use_tool_id(1, "test")
    monitoring.register_callback(1, monitoring.events.PY_START, lambda code, _: codes.append(code))
    monitoring.set_events(1, monitoring.events.PY_START)
    try:
        step()
    finally:
        monitoring.set_events(1, 0)
        monitoring.register_callback(1, monitoring.events.PY_START, None)
        monitoring.free_tool_id(1)
    own = [code for code in codes if code.co_filename == __file__ and code.co_name != "step"]
    made = [code for code in own if borrowed_lines(code, knows_resumed=True)]
    assert "apart" not in {code.co_name for code in made}
    assert [code.co_name for code in own if code not in made and not resumes(code)] == ["apart"]
    assert any(map(resumes, made))
    item = next(n for n, line in enumerate(_source(), 1) if "# line: item" in line)
    forward = next(code for code in made if code.co_name == "forward")
    assert item not in borrowed_lines(forward, knows_resumed=True)
    assert item in borrowed_lines(forward, knows_resumed=False)


def test_a_step_that_ends_where_dynamo_could_not_go_on_has_its_own_lines() -> None:
    """Nothing resumed in the recording, which would show that the code to go on is known."""
    weight, fails = torch.ones(2, requires_grad=True), False

    def ends(_: Any) -> None:
        if fails:
            raise KeyboardInterrupt

    weight.register_hook(ends)

    @torch.compile(backend="eager")
    def step() -> Any:
        loss = (weight * 2).sum()
        loss.backward()  # line: backward
        return loss

    def stepping() -> None:
        step()  # line: caller

    for _ in range(2):
        stepping()
    fails = True
    with profiler_ext.profile() as profile, pytest.raises(KeyboardInterrupt):
        stepping()
    found = profile.session.attribution()
    [line] = found[found.aten_op == "aten::ones_like"].line
    assert "# line: backward" in _source()[line - 1]


def _source() -> list[str]:
    return Path(__file__).read_text().splitlines()


def test_a_python_that_notes_no_columns_has_a_gap_that_says_so(tmp_path: Path) -> None:
    code = """
import torch, profiler_ext
with profiler_ext.profile() as profile:
    torch.ones(3).sin()
    profile.step()
print([str(gap.reason) for gap in profile.session.recording.gaps])
"""
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-X", "no_debug_ranges", "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        check=True,
    )
    assert result.stdout.strip() == "['lines_need_columns']"
