"""What the CPU did is told without the key of a graph, whether the session has the graph or not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler_ext.exporters.views.formatting import PYTHON, ActivityNames
from tests.analyses import gpu_step

GRAPH = replace(gpu_step().recording.graphs[0], key="fkey", compile_id="0/1")


@pytest.mark.parametrize(
    ("activity", "name"),
    [
        ("## Call CompiledFxGraph fkey ##", "compiled graph 0/1 forward"),
        ("## Call CompiledFxGraph fother ##", "a compiled graph"),
        ("## Call CompiledFxGraph None ##", "a compiled graph"),
        ("aten::mm", "aten::mm"),
        ("x" * 60, f"{'x' * 47}…"),
        (None, PYTHON),
    ],
)
def test_an_activity_has_a_short_name(activity: str | None, name: str) -> None:
    assert ActivityNames([GRAPH]).short(activity) == name
