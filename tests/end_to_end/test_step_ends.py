"""What runs at the end of a step is not compiled, wherever the step ends."""

from typing import Any

import pytest

import profiler_ext
from profiler_ext.profiling import switch
from profiler_ext.run.step_ends import StepEnds
from tests.compiling import torch


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
    ends = StepEnds(capture, on_end, None, None)
    ends.watch()
    try:
        step = torch.compile(optimizer.step, backend="eager")
        step()
        step()
    finally:
        ends.leave()
    assert evaluators == [None, None]
