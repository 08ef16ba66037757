"""A wait within a compiled graph is at the line of what the same op gave the device."""

from __future__ import annotations

import pytest

import profiler_ext
from profiler_ext.attribution import attribute
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.vocabulary import IdleCause
from tests.attribution.graphs import graph
from tests.attribution.reading import assert_conserves
from tests.attribution.small_graph import NODES, SITES
from tests.attribution.timeline import Timeline
from tests.cases.neutral import FOLDER, SUFFIX
from tests.handmade import pieces

WAITS = (IdleCause.SYNCHRONISATION, IdleCause.AFTER_SYNCHRONISATION)


def reported(analysis: Analysis) -> set[tuple[str, int | None, int | None]]:
    """Return the line of each piece, and that of its cause, where the cause is a wait."""
    assert_conserves(analysis)
    return {
        (each.cause, each.place.line, each.cause_place.line)
        for each in pieces(analysis)
        if each.cause in WAITS
    }


def waiting(*, compiled: bool, in_op: bool) -> Analysis:
    """A step whose product is waited for, and then another kernel runs."""
    timeline = Timeline()
    with timeline.annotation("ProfilerStep#1"), timeline.forward("fkey" if compiled else None):
        timeline.triton("triton_poi_fused_mul_0")
        with timeline.range("aten::mm"):
            timeline.launch("cublas")
            if in_op:
                timeline.wait()
        if not in_op:
            timeline.wait()
        timeline.triton("triton_poi_fused_relu_1")
    return attribute(timeline.recording(graph(NODES, SITES)))


def test_it_is_the_line_of_the_launch_before_it_in_its_op() -> None:
    assert reported(waiting(compiled=True, in_op=True)) == {
        (IdleCause.SYNCHRONISATION, 5, 5),
        (IdleCause.AFTER_SYNCHRONISATION, None, 5),
    }


@pytest.mark.parametrize(("compiled", "in_op"), [(True, False), (False, True)])
def test_a_wait_outside_of_ops_or_of_compiled_graphs_has_none(compiled: bool, in_op: bool) -> None:
    assert reported(waiting(compiled=compiled, in_op=in_op)) == {
        (IdleCause.SYNCHRONISATION, None, None),
        (IdleCause.AFTER_SYNCHRONISATION, None, None),
    }


def test_on_a_gpu_copies_to_the_host_wait_at_their_lines() -> None:
    analysis = profiler_ext.load(FOLDER / f"partitioned{SUFFIX}").analysis
    assert reported(analysis) == {
        (IdleCause.SYNCHRONISATION, 76, 76),
        (IdleCause.SYNCHRONISATION, 77, 77),
        (IdleCause.AFTER_SYNCHRONISATION, None, 76),
        (IdleCause.AFTER_SYNCHRONISATION, None, 77),
    }
