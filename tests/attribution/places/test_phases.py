from __future__ import annotations

import pytest

from profiler_ext.attribution.analysis import attribute
from profiler_ext.attribution.enclosing import CallContext
from profiler_ext.attribution.phases import call_phase, is_leaked, joint_phase, node_phase
from profiler_ext.records.vocabulary import Phase
from tests.attribution.graphs import graph, node
from tests.attribution.timeline import Timeline

NO_POSITION = CallContext()
FORWARD_CALL = CallContext(is_forward=True)
BACKWARD_CALL = CallContext(in_engine=True, is_backward=True)
FORWARD = graph((), ())
BACKWARD = graph((), (), is_backward=True)
INFERENCE = graph((), (), is_inference=True)
OPTIMIZER = graph((), (), is_inference=True, runs_optimizer=True)
COMPILED_AUTOGRAD = graph((), (), is_inference=True, compile_id="!0/1/0")
STEP_IN_HOOK = graph((), (), is_inference=True, compile_id="!0/1/0", runs_optimizer=True)


@pytest.mark.parametrize(
    ("instance", "changes", "phase"),
    [
        (FORWARD, {}, Phase.FORWARD),
        (FORWARD, {"partitioner_tag": None}, Phase.FORWARD),
        (FORWARD, {"partitioner_tag": "is_backward"}, Phase.BACKWARD),
        (FORWARD, {"partitioner_tag": "must_be_in_backward"}, Phase.BACKWARD),
        (FORWARD, {"recompute": "must_recompute"}, Phase.FORWARD),
        (FORWARD, {"is_gradient_acc": True}, Phase.GRADIENT_ACCUMULATION),
        (BACKWARD, {"partitioner_tag": "is_backward"}, Phase.BACKWARD),
        (BACKWARD, {"partitioner_tag": None}, Phase.BACKWARD),
        (BACKWARD, {"partitioner_tag": "is_forward"}, Phase.RECOMPUTE),
        (BACKWARD, {"partitioner_tag": "is_forward", "autograd_backward": True}, Phase.RECOMPUTE),
        (BACKWARD, {"partitioner_tag": "must_be_in_forward"}, Phase.BACKWARD),
        (BACKWARD, {"partitioner_tag": None, "recompute": "prefer"}, Phase.RECOMPUTE),
        (BACKWARD, {"partitioner_tag": "is_backward", "recompute": "prefer"}, Phase.BACKWARD),
        (BACKWARD, {"is_gradient_acc": True}, Phase.GRADIENT_ACCUMULATION),
        (INFERENCE, {"partitioner_tag": "must_be_in_backward"}, Phase.FORWARD),
        (INFERENCE, {"partitioner_tag": "is_forward", "autograd_backward": True}, Phase.BACKWARD),
        (INFERENCE, {"source_fns": ("grad_and_value", "_autograd_grad")}, Phase.BACKWARD),
        (INFERENCE, {"source_fns": ("_autograd_grad", "linear")}, Phase.FORWARD),
        (INFERENCE, {"source_fns": ("_autograd_grad_1",)}, Phase.BACKWARD),
        (INFERENCE, {"source_fns": ("grad",), "autograd_backward": None}, Phase.BACKWARD),
        (INFERENCE, {"source_fns": ("grad_1",), "autograd_backward": True}, Phase.BACKWARD),
        (INFERENCE, {"source_fns": ("grad",), "autograd_backward": False}, Phase.FORWARD),
        (FORWARD, {"source_fns": ("grad",), "autograd_backward": True}, Phase.BACKWARD),
        (FORWARD, {"partitioner_tag": None, "forward_node": "mul"}, Phase.BACKWARD),
        (FORWARD, {"forward_node": "mul"}, Phase.BACKWARD),
        (INFERENCE, {"partitioner_tag": None, "forward_node": "mul"}, Phase.BACKWARD),
        (BACKWARD, {"forward_node": "mul"}, Phase.RECOMPUTE),
        (COMPILED_AUTOGRAD, {"partitioner_tag": None}, Phase.BACKWARD),
        (COMPILED_AUTOGRAD, {"partitioner_tag": "is_forward"}, Phase.RECOMPUTE),
        (STEP_IN_HOOK, {"partitioner_tag": None, "stack": ()}, Phase.BACKWARD),
        (OPTIMIZER, {"stack": ()}, Phase.OPTIMIZER),
        (OPTIMIZER, {}, Phase.FORWARD),
    ],
)
def test_the_phase_of_a_node_follows_its_graph_and_its_tags(instance, changes, phase):
    assert node_phase(node("n", 1, **changes), instance, NO_POSITION, in_torch_optim=False) is phase


# Builds before 2.12 kept the tag where nodes share it, and it spread onto forward nodes.
LEAKED = {"autograd_backward": True, "source_fns": ("flex_attention",)}


@pytest.mark.parametrize(
    ("instance", "changes", "phase"),
    [
        (FORWARD, {}, Phase.FORWARD),
        (FORWARD, {"source_fns": ()}, Phase.FORWARD),
        (FORWARD, {"partitioner_tag": "must_be_in_forward"}, Phase.FORWARD),
        (FORWARD, {"partitioner_tag": None}, Phase.FORWARD),
        (INFERENCE, {"partitioner_tag": None}, Phase.FORWARD),
    ],
)
def test_where_the_backward_tag_is_contradicted_the_node_is_forward(instance, changes, phase):
    leaked = node("scores", 1, **{**LEAKED, **changes})
    assert node_phase(leaked, instance, NO_POSITION, in_torch_optim=False) is phase
    assert is_leaked(leaked, instance)


@pytest.mark.parametrize(
    ("instance", "changes"),
    [
        (FORWARD, {"partitioner_tag": "is_backward"}),
        (FORWARD, {"partitioner_tag": None, "forward_node": "mul"}),
        (FORWARD, {"source_fns": ("grad",)}),
        (INFERENCE, {"source_fns": ()}),
        (BACKWARD, {"partitioner_tag": "is_backward"}),
        (BACKWARD, {"partitioner_tag": "is_forward"}),
        (FORWARD, {"autograd_backward": None}),
        (FORWARD, {"autograd_backward": False}),
    ],
)
def test_a_tag_that_nothing_contradicts_did_not_leak(instance, changes):
    assert not is_leaked(node("scores", 1, **{**LEAKED, **changes}), instance)


def test_the_notes_say_which_nodes_a_leaked_tag_was_on():
    nodes = [node(name, 1, **LEAKED) for name in ("a", "b", "c", "d")]
    recomputed = graph(nodes, (), is_backward=True)
    graphs = (graph(nodes, ()), graph(nodes[:1], ()), recomputed)
    assert attribute(Timeline().recording(*graphs)).notes == (
        "torch tagged 5 forward nodes of 2 graphs with autograd_backward (a, b, c, ...); the "
        "rest of what it says of them contradicts that, and their phase is forward.",
    )


def test_the_notes_count_the_backward_nodes_that_lead_to_no_forward_node():
    backward = {"partitioner_tag": "is_backward"}
    nodes = [
        node("linked", 1, **backward, forward_node="relu"),
        node("lost", 1, **backward),
        node("untagged", 1, partitioner_tag=None),
        node("sum", 1, **backward, is_gradient_acc=True),
        node("recomputed", 1),
        node("copy_", 1, partitioner_tag="must_be_in_backward"),
    ]
    graphs = (graph(nodes, (), is_backward=True), graph(nodes, ()))
    assert attribute(Timeline().recording(*graphs)).notes == (
        "2 of 3 backward nodes (lost, untagged) differentiate a forward node that torch's numbers, "
        "sources and stacks do not tell; they have no forward_node.",
    )


@pytest.mark.parametrize(
    ("changes", "phase"),
    [
        ({}, Phase.FORWARD),
        ({"partitioner_tag": "must_be_in_forward"}, Phase.FORWARD),
        ({"autograd_backward": True}, Phase.FORWARD),
        ({"partitioner_tag": "is_backward"}, Phase.BACKWARD),
        ({"partitioner_tag": "must_be_in_backward"}, Phase.BACKWARD),
        ({"partitioner_tag": None}, Phase.BACKWARD),
        ({"source_fns": ("_autograd_grad",)}, Phase.BACKWARD),
        ({"partitioner_tag": "is_backward", "is_gradient_acc": True}, Phase.GRADIENT_ACCUMULATION),
    ],
)
def test_the_phase_of_a_joint_graphs_node_follows_its_tags(changes, phase):
    assert joint_phase(node("n", 1, **changes)) is phase


def test_a_stack_through_torch_optim_and_a_call_in_its_step_are_the_optimizers():
    step = CallContext(in_optimizer=True)
    assert node_phase(node("n", 1), OPTIMIZER, NO_POSITION, in_torch_optim=True) is Phase.OPTIMIZER
    assert node_phase(node("n", 1), INFERENCE, step, in_torch_optim=False) is Phase.OPTIMIZER


def test_a_forward_in_the_engine_is_recomputed_and_what_autograd_does_not_know_is_backward():
    again = CallContext(in_engine=True, is_forward=True)
    plain = CallContext(in_engine=True)
    assert node_phase(node("n", 1), FORWARD, again, in_torch_optim=False) is Phase.RECOMPUTE
    assert node_phase(node("n", 1), INFERENCE, plain, in_torch_optim=False) is Phase.BACKWARD


@pytest.mark.parametrize(
    ("instance", "context", "phase"),
    [
        (FORWARD, FORWARD_CALL, Phase.FORWARD),
        (BACKWARD, BACKWARD_CALL, Phase.BACKWARD),
        (OPTIMIZER, NO_POSITION, Phase.OPTIMIZER),
        (INFERENCE, NO_POSITION, Phase.FORWARD),
        (None, FORWARD_CALL, Phase.FORWARD),
        (None, BACKWARD_CALL, Phase.BACKWARD),
        (None, CallContext(in_engine=True, is_forward=True), Phase.RECOMPUTE),
        (None, CallContext(in_optimizer=True), Phase.OPTIMIZER),
        (None, NO_POSITION, Phase.OTHER),
    ],
)
def test_work_of_no_node_has_the_phase_of_its_graphs_call(instance, context, phase):
    assert call_phase(instance, context) is phase
