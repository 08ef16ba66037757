"""How a node is tied to forward work: by a rule, or because of what it is."""

from __future__ import annotations

import pytest

from profiler_ext.attribution import attribute
from profiler_ext.attribution.places import eager_forward_evidence, forward_evidence
from profiler_ext.records.vocabulary import Phase
from tests.attribution.graphs import extern, graph, node
from tests.attribution.timeline import Timeline

BACKWARD = graph([node("mm", 1)], [], is_backward=True)
COPIED = graph([node("mm", 1)], [], compile_id="!0")


@pytest.mark.parametrize(
    ("found", "phase", "expected"),
    [
        (node("mm", 1, forward_node="mm_0", forward_evidence="seq_nr"), Phase.BACKWARD, "seq_nr"),
        (node("mm", 1), Phase.BACKWARD, "not_linked"),
        (node("copy_", 1), Phase.BACKWARD, "mutation"),
        (node("copy_", 1), Phase.FORWARD, "mutation"),
        (node("copy_", 1), Phase.OPTIMIZER, None),
        (node("add", 1), Phase.GRADIENT_ACCUMULATION, "sum_of_gradients"),
        (node("mm", 1), Phase.RECOMPUTE, "recomputed_forward"),
        (node("addmm", 1, replaced=("mm", "add")), Phase.FORWARD, "replaced_forward"),
        (node("mm", 1), Phase.FORWARD, None),
    ],
)
def test_a_node_has_the_rule_that_linked_it_or_what_it_is(found, phase, expected):
    assert forward_evidence(found, BACKWARD, phase) == expected


def test_of_compiled_autograds_nodes_what_it_copied_has_a_joint_graph_and_hooks_have_none():
    copied, hook = node("mm", 1, joint="j"), node("mm", 1)
    gone = node("mm", 1, stack=())
    found = [forward_evidence(each, COPIED, Phase.BACKWARD) for each in (copied, hook, gone)]
    assert found == ["not_linked", "hook", "not_linked"]


@pytest.mark.parametrize(
    ("op", "forward_op", "phase", "expected"),
    [
        ("aten::mm", "aten::linear", Phase.BACKWARD, "autograd_sequence_number"),
        ("aten::fill_", None, Phase.BACKWARD, "not_linked"),
        ("c10d::allreduce_", None, Phase.BACKWARD, None),
        ("aten::add_", None, Phase.GRADIENT_ACCUMULATION, "sum_of_gradients"),
        ("aten::mm", None, Phase.FORWARD, None),
    ],
)
def test_an_eager_op_is_linked_by_its_sequence_number(op, forward_op, phase, expected):
    assert eager_forward_evidence(op, forward_op, phase) == expected


def test_a_place_carries_the_rule():
    linked = node("mm", 1, forward_node="addmm", forward_evidence="seq_nr_and_source")
    timeline = Timeline()
    with timeline.forward("fkey"):
        timeline.op("aten::mm", "cublas")
    (place,) = attribute(timeline.recording(graph([linked], [extern("mm", "mm")]))).places
    assert (place.forward_node, place.forward_evidence) == ("addmm", "seq_nr_and_source")
