"""A call of a model that ends a step is over where the recording begins at its end."""

from __future__ import annotations

from tests.compiling import fresh_torch
from tests.end_to_end.script_runs import Run, exits, out, run
from tests.watched import needs_lines
from verification.eager_lines.seeing import launches

__all__ = ["exits", "fresh_torch", "run"]
pytestmark = needs_lines


def test_what_follows_the_call_on_its_line_is_outside_of_the_model_in_each_step(run: Run) -> None:
    body = """
        net = torch.nn.Sequential(model)
        with torch.no_grad():
            for n in range(6): (net(torch.ones(2, 4)) @ torch.ones(4, 4)).argmax()
    """
    assert run(body, "--step-on", "forward", "--skip", "2") == 0
    found = launches(out().analysis, "linear", "matmul", "argmax")
    assert [(each.op, each.module) for each in found] == [
        ("matmul", None),
        ("argmax", None),
        ("linear", "0"),
        ("matmul", None),
        ("argmax", None),
        ("linear", "0"),
    ]
