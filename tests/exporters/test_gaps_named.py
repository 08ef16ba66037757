"""A gap of compiled ops is named wherever pages say so: breakdown, the line below it, a note."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from profiler_ext.attribution.notes import notes_on
from profiler_ext.attribution.step_breakdown import break_down_steps, busy_spans
from profiler_ext.exporters.views.summary import coverage_lines
from profiler_ext.records.analysis import Analysis
from tests.analyses import gpu_step
from tests.frames import coverage
from tests.handmade import interned

COPY, PRODUCT, FUSED = 0, 1, 2
"""Launches of the step: 4.3% of the launches' time, 21.3% and 8.5%."""


def attributed_to_ops(gap: str, launch: int) -> Analysis:
    """Return a step of which a launch is a compiled op's without a line."""
    step = gpu_step()
    launches_of = step.launches
    levels, gaps, scopes = (
        list(column) for column in (launches_of.level, launches_of.gap, launches_of.scope)
    )
    levels[launch], gaps[launch], scopes[launch] = "op", gap, "compiled"
    launches = replace(
        launches_of, level=interned(levels), gap=interned(gaps), scope=interned(scopes)
    )
    none = np.zeros(len(launches), bool)
    breakdown = break_down_steps(launches, none, busy_spans(launches), step.steps)
    return replace(step, launches=launches, breakdown=breakdown)


@pytest.mark.parametrize("gap", ["no_source_line", "traced_gradient_not_linked"])
def test_a_gap_of_a_compiled_op_is_in_the_breakdown_the_line_below_it_and_a_note(
    gap: str,
) -> None:
    step = attributed_to_ops(gap, PRODUCT)
    rows = coverage(step).query("category == @gap")
    assert rows[["scope", "duration_ns"]].to_numpy().tolist() == [["compiled", 50_000]]
    (line,) = (text for text in coverage_lines([step]) if text.startswith("Unattributed"))
    assert line == f"Unattributed, of busy time: {gap} 22.3%, ambiguous_extern_run 8.9%."
    (note,) = (each for each in notes_on(step.recording, step.launches) if each.startswith(gap))
    assert note.startswith(f"{gap}: 1 launches (50.0 us) ")


@pytest.mark.parametrize("gap", ["no_source_line", "wrapper_glue", "no_launching_op"])
def test_a_usual_gap_has_a_note_from_a_twentieth_of_the_launches_time_on(gap: str) -> None:
    for launch, is_noted in ((COPY, False), (FUSED, True)):
        step = attributed_to_ops(gap, launch)
        notes = notes_on(step.recording, step.launches)
        assert any(note.startswith(f"{gap}: ") for note in notes) is is_noted
