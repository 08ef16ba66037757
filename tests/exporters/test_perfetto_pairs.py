from __future__ import annotations

import dataclasses

import numpy as np

from profiler_ext import load
from profiler_ext.exporters.launch_parts import PartColumns
from profiler_ext.exporters.perfetto.flows import forward_launches
from profiler_ext.records.analysis import Analysis, Place, Step
from profiler_ext.records.events import Thread
from profiler_ext.records.provenance import FxNode, GraphInstance, Provenance
from profiler_ext.records.recording import Recording
from profiler_ext.records.vocabulary import CacheState, Phase
from tests.cases.neutral import FOLDER, SUFFIX
from tests.exporters.test_perfetto_queries import RECORDED
from tests.fx_nodes import fx_node
from tests.handmade import Mark, Row, launches, shares, trace

FORWARD, BACKWARD, COPIED = 0, 1, 2


def _graph(index: int, node: FxNode) -> GraphInstance:
    backward = index == BACKWARD
    joint = "of compiled autograd" if index == COPIED else "joint"
    provenance = Provenance("d", "2.11.0", backward, False, joint, None, (node,), ())
    return GraphInstance(
        index, None, "0/0", backward, CacheState.MISS, None, 0, None, provenance, (node,)
    )


GRAPHS = (
    _graph(FORWARD, fx_node("mul_post", "aten.mul.Tensor", joint_name="mul")),
    _graph(BACKWARD, fx_node("mul_9", "aten.mul.Tensor", joint_name="mul_9", forward_node="mul")),
    _graph(COPIED, fx_node("mul_3", "aten.mul.Tensor", forward_node="mul", joint="joint")),
)


def _forward(module: str) -> Place:
    return Place(graph=FORWARD, node="mul_post", phase=Phase.FORWARD, module=module)


def _backward(module: str) -> Place:
    return Place(
        graph=BACKWARD, node="mul_9", phase=Phase.BACKWARD, module=module, forward_node="mul"
    )


def _copied(module: str) -> Place:
    """A node that compiled autograd copied: its joint graph is not its graph's."""
    return dataclasses.replace(_backward(module), graph=COPIED, node="mul_3")


def _pairs(*ran: Place, steps: tuple[int, ...] | None = None) -> dict[int, int]:
    marks = [
        Mark(f"k{place.graph}", "kernel", Thread(0, 7), 10 * at, 5, {"device": 0, "stream": 7})
        for at, place in enumerate(ran)
    ]
    rows = [
        Row(at, ((at, 5),), "triton", place.phase, "line", "k", (steps or (0,) * len(ran))[at],
            place.graph, 0)
        for at, place in enumerate(ran)
    ]  # fmt: skip
    analysis = Analysis(
        recording=Recording(trace(marks), GRAPHS),
        steps=(Step.on_cpu(0, 0, 1_000), Step.on_cpu(1, 1_000, 2_000)),
        launches=launches(marks, rows),
        places=ran,
        shares=shares(rows),
    )
    return forward_launches(analysis)


def test_layers_that_share_a_graph_are_distinguished_by_their_module() -> None:
    ran = (_forward("a"), _forward("b"), _backward("b"), _backward("a"))
    assert _pairs(*ran) == {2: 1, 3: 0}


def test_module_that_ran_twice_is_differentiated_last_first() -> None:
    assert _pairs(_forward("a"), _forward("a"), _backward("a"), _backward("a")) == {2: 1, 3: 0}


def test_accumulated_gradients_belong_to_the_forward_just_before() -> None:
    assert _pairs(_forward("a"), _backward("a"), _forward("a"), _backward("a")) == {1: 0, 3: 2}


def test_backward_that_compiled_autograd_copied_pairs_by_the_joint_graph_it_came_from() -> None:
    assert _pairs(_forward("a"), _forward("b"), _copied("b"), _copied("a")) == {2: 1, 3: 0}


def test_only_the_first_step_is_paired() -> None:
    ran = (_forward("a"), _backward("a"), _forward("a"), _backward("a"))
    assert _pairs(*ran, steps=(0, 0, 1, 1)) == {1: 0}


def test_backward_of_another_module_has_no_pair() -> None:
    assert _pairs(_forward("a"), _backward("b")) == {}


def test_recorded_relu_and_gelu_lead_back_to_the_kernels_that_computed_them() -> None:
    analysis = load(RECORDED).analysis
    name = analysis.launches.name
    found = {name[back]: name[forward] for back, forward in forward_launches(analysis).items()}
    relu, gelu = "triton_poi_fused_threshold_backward_0", "triton_per_fused_gelu_gelu_backward"
    assert found[relu] == "triton_poi_fused_add_addmm_relu_threshold_backward_1"
    assert {f for b, f in found.items() if b.startswith(gelu)} == {
        "triton_per_fused_gelu_native_layer_norm_0"
    }


def test_what_a_pass_made_of_a_forward_op_stands_for_it_where_it_begins() -> None:
    """A linear layer whose bias a pass took out of the product: two launches forward."""
    analysis = load(FOLDER / f"repeated_layers{SUFFIX}").analysis
    launches, found = analysis.launches, forward_launches(analysis)
    products = [
        (launches.kernel[back], launches.kernel[forward])
        for back, forward in found.items()
        if "mm" in launches.kernel[back]
    ]
    assert len(products) > 12 * 8
    assert {forward.partition(".")[0] for _, forward in products} == {"extern_kernels"}


def test_kernels_of_one_library_call_share_its_forward() -> None:
    analysis = load(FOLDER / f"cnn{SUFFIX}").analysis
    step, parts, places = analysis.launches.step, PartColumns(analysis), analysis.places
    backward = [
        row
        for row in range(len(analysis.launches))
        if places[parts.of(row)[0]].phase == "backward" and step[row] == analysis.steps[0].number
    ]
    assert sorted(forward_launches(analysis)) == backward


def test_without_steps_there_are_no_pairs() -> None:
    assert forward_launches(dataclasses.replace(load(RECORDED).analysis, steps=())) == {}


def test_work_of_the_graph_runner_has_no_call_site_and_disturbs_nothing():
    run = load(FOLDER / f"cudagraphs{SUFFIX}").analysis
    nowhere = [int(row) for row in np.flatnonzero(np.ma.getmaskarray(run.launches.call_site))]
    pairs = forward_launches(run)
    assert nowhere and pairs
