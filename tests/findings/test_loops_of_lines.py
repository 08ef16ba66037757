"""The line that runs a loop, of those that its rounds come to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler_ext.findings.rules import python_loop
from profiler_ext.records.lineage import Frame
from tests.findings.stepping import only
from tests.findings.test_launch_groups import moments


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("return fired(conv(x))", 30),
        ("y = fired(conv(x))", 12),
        ("return [fired(conv(x)) for conv in convs]", 12),
    ],
)
def test_a_line_that_returns_ends_a_round_of_the_loop_that_calls_it(code: str, line: int):
    made = moments(8)
    outer = Frame("/run.py", 30, "run", "rows.append(encoded(part))")
    inner = Frame("/model.py", 12, "forward", code)
    places = tuple(
        replace(each, code=code if len(each.stack) == 1 else each.code) for each in made.places
    )
    stacks = {1: (outer, inner), 2: (outer, inner, Frame("/model.py", 3, "fired", "x * s"))}
    places = tuple(replace(each, stack=stacks.get(len(each.stack), ())) for each in places)
    assert only(python_loop.RULE, replace(made, places=places)).location.line == line
