"""What runs at the end of a step is not compiled, wherever the step ends."""

from contextlib import ExitStack, suppress
from functools import partial
from operator import methodcaller
from typing import Any
from unittest import mock

import pytest

import profiler_ext
from profiler_ext.profiling import switch
from profiler_ext.run.step_ends import StepEnds
from tests.compiling import torch

CPU = torch.profiler.ProfilerActivity.CPU


@pytest.mark.usefixtures("fresh_torch")
def test_dynamo_compiles_nothing_at_the_end_of_a_compiled_optimizers_step() -> None:
    profiler_ext.enable(strict=True)
    capture = switch.current()
    assert capture is not None
    evaluators: list[Any] = []

    def on_end() -> None:
        evaluators.append(torch._C._dynamo.eval_frame.get_eval_frame_callback())

    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    optimizer = torch.optim.SGD([parameter])
    ends = StepEnds(capture, on_end, None)
    ends.watch()
    try:
        step = torch.compile(optimizer.step, backend="eager")
        step()
        step()
    finally:
        ends.leave()
    assert evaluators == [None, None]


@pytest.mark.usefixtures("fresh_torch")
def test_of_two_runs_in_one_process_none_takes_the_others_profiler_for_the_scripts() -> None:
    profiler_ext.enable(strict=True)
    capture = switch.current()
    assert capture is not None
    profilers = [torch.profiler.profile(activities=[CPU]) for _ in range(2)]
    ends = [StepEnds(capture, partial(methodcaller("step"), each), each) for each in profilers]
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    optimizer = torch.optim.SGD([parameter])
    with ExitStack() as stack:
        for each, profiler in zip(ends, profilers, strict=True):
            each.watch()
            stack.callback(each.leave)
            stack.enter_context(mock.patch.object(profiler, "_transit_action"))
        optimizer.step()
    assert [(each.count, each.source) for each in ends] == [(1, "Optimizer.step")] * 2
    assert [profiler.step_num for profiler in profilers] == [1, 1]


@pytest.mark.usefixtures("fresh_torch")
def test_where_the_optimizer_that_ended_the_steps_is_gone_the_next_one_ends_them() -> None:
    profiler_ext.enable(strict=True)
    capture = switch.current()
    assert capture is not None
    ends = StepEnds(capture, lambda: None, None)
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    ends.watch()
    try:
        first, neighbour = torch.optim.SGD([parameter]), torch.optim.Adam([parameter])
        for optimizer in (first, neighbour, first):
            optimizer.step()
        assert ends.count == 2
        del first, optimizer
        for _ in range(3):
            neighbour.step()
        assert ends.count == 5
    finally:
        ends.leave()


@pytest.mark.usefixtures("fresh_torch")
def test_when_the_scripts_own_profiler_is_over_its_optimizer_ends_a_step_each() -> None:
    profiler_ext.enable(strict=True)
    capture = switch.current()
    assert capture is not None
    ends = StepEnds(capture, lambda: None, None)
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    optimizer = torch.optim.SGD([parameter])
    ends.watch()
    try:
        other = torch.profiler.profile(activities=[CPU])
        with torch.profiler.profile(activities=[CPU]) as profiler:
            for _ in range(2):
                optimizer.step()
                optimizer.step()
                profiler.step()
                with suppress(AssertionError):  # it was not started
                    other.stop()
            # Until it first stepped, the optimizer's two steps were the program's.
            assert (ends.count, ends.source) == (4, "prof.step")
        for _ in range(3):
            optimizer.step()
        assert (ends.count, ends.source) == (7, "Optimizer.step")
        assert profiler is not None
    finally:
        ends.leave()
