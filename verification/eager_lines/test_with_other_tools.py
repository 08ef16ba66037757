"""The watch of lines beside others: threads, workers, debuggers and coverage, code that is fast."""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from torch.utils.data import DataLoader

from profiler_ext.python_lines import watch
from profiler_ext.python_lines.watch import MAX_ENTRIES
from tests.compiling import torch
from tests.watched import needs_lines
from verification.eager_lines.seeing import briefly, recorded, seen

pytestmark = needs_lines
GIVEN = torch.rand(4, 4)


@contextmanager
def tools(*ids: int) -> Iterator[list[int]]:
    """Others that hear of each line of ``one_line``, under ids of ``sys.monitoring``."""
    monitoring: Any = sys.monitoring
    received: list[int] = []
    for each in ids:
        monitoring.use_tool_id(each, f"tool {each}")
        callback = functools.partial(_observed, received, each)
        monitoring.register_callback(each, monitoring.events.LINE, callback)
        monitoring.set_events(each, monitoring.events.LINE)
    try:
        yield received
    finally:
        for each in ids:
            monitoring.set_events(each, 0)
            monitoring.register_callback(each, monitoring.events.LINE, None)
            monitoring.free_tool_id(each)


def _observed(received: list[int], tool: int, code: types.CodeType, _: int) -> None:
    if code is one_line.__code__:
        received.append(tool)


def one_line() -> None:
    GIVEN.sin()  # line: only


@pytest.mark.parametrize("tool", [0, 1, 2, 5])
def test_another_tool_hears_of_each_line_as_before_and_we_of_ours(tool: int) -> None:
    with tools(tool) as received:
        found = briefly(one_line, "sin")
        one_line()
    assert found == [("sin", "other", "only")]
    assert received == [tool] * 3  # before the recording, in it, and after it


def test_where_no_tool_id_is_free_the_gap_says_so_and_nothing_is_taken_from_the_others() -> None:
    monitoring: Any = sys.monitoring
    with tools(2, 3, 4) as received:
        found = briefly(one_line, "sin")
        names = [monitoring.get_tool(each) for each in (2, 3, 4)]
    assert found == [("sin", "other", "gap lines_tool_taken")]
    assert sorted(received) == [2, 2, 3, 3, 4, 4]
    assert names == ["tool 2", "tool 3", "tool 4"]


def test_lines_that_are_switched_off_are_a_gap() -> None:
    assert briefly(one_line, "sin", lines=False) == [("sin", "other", "gap lines_off")]


def test_after_a_recording_no_tool_is_left() -> None:
    recorded(one_line)
    monitoring: Any = sys.monitoring
    assert [monitoring.get_tool(each) for each in range(6)] == [None] * 6


def spin() -> None:
    """Run lines until the watch hears of them no more; it would be full before the rounds are."""
    monitoring: Any = sys.monitoring
    for _ in range(MAX_ENTRIES):
        if not monitoring.get_local_events(3, spin.__code__) & monitoring.events.LINE:
            break
    GIVEN.sin()  # line: hot


def test_code_that_runs_lines_too_fast_loses_them_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        watch, "_MIN_NS_PER_ENTRY", 100_000
    )  # too fast on any machine under any load

    def step() -> None:
        spin()
        GIVEN.cos()  # line: caller

    assert briefly(step, "sin", "cos", is_warm=False) == [
        ("sin", "other", "gap line_of_hot_code"),
        ("cos", "other", "caller"),
    ]


def test_threads_that_train_at_the_same_time_have_each_its_own_lines() -> None:
    def one() -> None:
        w = torch.rand(4, 4, requires_grad=True)
        w.sin().backward(GIVEN)  # line: one

    def other() -> None:
        w = torch.rand(4, 4, requires_grad=True)
        w.tan().backward(GIVEN)  # line: other

    def step() -> None:
        threads = [threading.Thread(target=each) for each in (one, other, one, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    found = seen(step, "sin", "cos", "tan", "pow")
    assert {each.brief for each in found} == {
        ("sin", "forward", "one"),
        ("cos", "backward", "one"),
        ("tan", "forward", "other"),
        ("pow", "backward", "other"),
    }
    assert len(found) == 8


def test_a_gradient_that_another_thread_takes_while_this_one_goes_on_is_of_its_op() -> None:
    w = torch.rand(256, 256, requires_grad=True)

    def taken(y: Any) -> None:
        for _ in range(20):
            y.backward(torch.ones(256, 256), retain_graph=True)

    def step() -> None:
        y = w @ w  # line: product
        taker = threading.Thread(target=taken, args=(y,))
        taker.start()
        while taker.is_alive():
            time.sleep(0.0001)
            time.sleep(0.0001)

    lines = {(each.phase, each.line) for each in seen(step, "matmul", "mm", "add_", "add")}
    assert lines == {
        ("forward", "product"),
        ("backward", "product"),
        ("gradient_accumulation", "product"),
    }


class Numbers(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return torch.full((4, 4), float(index)).sin()  # line: dataset


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_come_at_the_line_of_the_dataset_or_from_workers_that_nobody_watches(
    workers: int,
) -> None:
    loader = DataLoader(Numbers(), batch_size=2, num_workers=workers)

    def step() -> None:
        for batch in loader:  # line: loader
            batch.exp()  # line: batch

    found = set(briefly(step, "sin", "stack", "exp"))
    of_dataset = {("sin", "other", "dataset"), ("stack", "other", "loader")}
    assert found - of_dataset == {("exp", "other", "batch")}
    assert (found >= of_dataset) == (workers == 0)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_fork_in_a_recorded_step_leaves_both_processes_as_they_are() -> None:
    states: list[int] = []

    def step() -> None:
        child = os.fork()
        if not child:
            GIVEN.sin()
            os._exit(0)
        states.append(os.waitpid(child, 0)[1])
        GIVEN.cos()  # line: parent

    assert briefly(step, "sin", "cos") == [("cos", "other", "parent")]
    assert states == [0, 0]


def test_code_that_is_no_file_s_has_the_line_of_the_file_that_runs_it() -> None:
    made = types.FunctionType(compile("GIVEN.sin()", "<made>", "eval"), globals())

    def step() -> None:
        made()  # line: caller

    assert briefly(step, "sin") == [("sin", "other", "caller")]
