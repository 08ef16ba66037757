"""A gradient's node leads to the op that made the autograd node which ran, or nowhere."""

from __future__ import annotations

import dataclasses

import pytest

from profiler_ext.capture.lineage.gradients import find_gradients
from profiler_ext.capture.lineage.stage import Link
from profiler_ext.capture.traces.creations import Creation
from profiler_ext.records.lineage import Lineage
from profiler_ext.torch_compat.autograd import AutogradNode, Edge
from tests.capture.fx_graphs import frame_text


def line(code: str) -> str:
    return frame_text("/src/model.py", 1, "forward", code)


CALLED = {"source_fn_stack": [("tanh", None)], "stack_trace": line("y = torch.tanh(rows)")}
ASKS = {"source_fn_stack": [("_autograd_grad", None)], "stack_trace": line("asks")}


def code(place: Lineage | None) -> str | None:
    return place.stack[-1].code if place else None


def forward(op: str, since: int, until: int, thread: int = 1) -> Creation:
    meta = {"stack_trace": line(f"line of {op}"), "source_fn_stack": [(op, None)]}
    return Creation(f"aten.{op}.default", (), meta, None, False, thread, since, until)


def gradient(
    name: str, number: int, *inputs: str, op: str = "mul", twice: bool = False
) -> Creation:
    meta = {**ASKS, "original_aten": f"aten.{op}.Tensor"}
    return Creation(f"aten.{op}.Tensor", inputs, meta, AutogradNode(name, number), twice, 1, 99, 99)


def test_the_op_that_bears_the_number_and_the_name_is_differentiated() -> None:
    creations = {
        "sin": forward("sin", 4, 5),
        "gt": forward("gt", 5, 5),
        "cos": forward("cos", 5, 6),
        "grad": gradient("SinBackward0", 5),
    }
    found = find_gradients(creations)
    assert found.links == {"grad": Link("sin", "autograd_node")}
    assert code(found.places["grad"]) == "line of sin"


def test_an_op_is_differentiated_that_had_its_number_before_the_views_that_it_reads() -> None:
    views = {f"view_{n}": forward("view", n - 1, n) for n in (6, 7)}
    numbered = {
        "sin": forward("sin", 4, 4),
        **{name: dataclasses.replace(view, meta=CALLED) for name, view in views.items()},
        "tanh": dataclasses.replace(forward("tanh", 7, 7), meta=CALLED),
        "grad": gradient("TanhBackward0", 6),
        "other": gradient("CosBackward0", 6),
    }
    assert find_gradients(numbered).links == {"grad": Link("tanh", "autograd_node")}
    changed = dataclasses.replace(numbered["view_7"], target="aten.is_same_size.default")
    op = dataclasses.replace(numbered["tanh"], until=8)
    of_tangent = {**numbered, "view_7": changed, "tanh": op}  # in forward mode
    assert find_gradients(of_tangent).links == {"grad": Link("tanh", "autograd_node")}
    numbered["view_6"] = views["view_6"]  # of another call: the op did not wait for it
    assert find_gradients(numbered).links == {}


@pytest.mark.parametrize(
    "creation",
    [
        gradient("AsStridedBackward0", 6),  # its op left no node, and cos has the number
        gradient("SinBackward0", 9),  # nothing was made with this number
        gradient("ExpBackward0", 3),  # the number was given before the graph
    ],
)
def test_what_no_op_bears_is_left_unlinked(creation: Creation) -> None:
    creations = {"sin": forward("sin", 4, 5), "cos": forward("cos", 5, 6), "grad": creation}
    found = find_gradients(creations)
    assert (found.links, found.places) == ({}, {})


def of_call(op: str, since: int, until: int, call: str = "linear") -> Creation:
    meta = {"stack_trace": line(f"line of {call}"), "source_fn_stack": [(call, None)]}
    return dataclasses.replace(forward(op, since, until), meta=meta)


def test_a_number_between_two_nodes_of_one_call_is_of_that_call() -> None:
    """``vmap`` runs a product and a sum for ``addmm``, whose number no node bears by its name."""
    creations = {
        "permute": of_call("permute", 4, 5),
        "mm": of_call("mm", 5, 6),
        "add": of_call("add", 6, 6),
        "tanh": forward("tanh", 6, 7),
        "grad": gradient("AddmmBackward0", 6),
    }
    found = find_gradients(creations)
    assert found.links == {"grad": Link("add", "autograd_node_of_call")}
    assert code(found.places["grad"]) == "line of linear"


@pytest.mark.parametrize(
    "before",
    [
        of_call("permute", 4, 5, "t"),  # the number may be of what left no node between the calls
        dataclasses.replace(of_call("permute", 4, 5), replays="mm"),  # made anew in another call
        dataclasses.replace(of_call("permute", 4, 5), thread=2),
        dataclasses.replace(of_call("permute", 4, 5), autograd_node=AutogradNode("TBackward0", 3)),
    ],
)
def test_a_number_after_another_call_s_node_is_of_no_call(before: Creation) -> None:
    creations = {
        "permute": before,
        "mm": of_call("mm", 5, 6),
        "grad": gradient("AddmmBackward0", 6),
    }
    assert "grad" not in find_gradients(creations).links


def test_a_number_in_a_body_is_of_no_call_as_the_body_may_run_twice() -> None:
    body = {"source_fn_stack": [("scan", None), ("linear", None)], "stack_trace": line("linear")}
    creations = {
        "permute": dataclasses.replace(of_call("permute", 4, 5), meta=body),
        "mm": dataclasses.replace(of_call("mm", 5, 6), meta=body),
        "grad": gradient("AddmmBackward0", 6),
    }
    assert "grad" not in find_gradients(creations).links


def test_a_number_between_a_gradient_s_first_values_is_of_no_call() -> None:
    seed = dataclasses.replace(gradient("", 0, op="full"), autograd_node=None, since=4, until=5)
    creations = {
        "full": seed,
        "full_1": dataclasses.replace(seed, since=5, until=6),
        "grad": gradient("AddmmBackward0", 6),
    }
    assert "grad" not in find_gradients(creations).links


def test_a_number_within_one_node_s_backward_leads_to_that_and_on_to_its_op() -> None:
    first = dataclasses.replace(gradient("SinBackward0", 5), since=6, until=7)
    creations = {
        "sin": forward("sin", 4, 5),
        "first": first,
        "second": dataclasses.replace(first, since=7, until=8),
        "grad": gradient("AddmmBackward0", 8),
    }
    found = find_gradients(creations)
    assert found.links["grad"] == Link("second", "autograd_node_of_call")
    assert code(found.places["grad"]) == "line of sin"


def test_a_number_of_two_threads_links_where_the_names_differ_only() -> None:
    creations = {
        "sin": forward("sin", 4, 5),
        "sin_1": forward("sin", 4, 5, thread=2),
        "cos": forward("cos", 5, 6),
        "exp": forward("exp", 5, 6, thread=2),
        "open": gradient("SinBackward0", 5),
        "told": gradient("ExpBackward0", 6),
    }
    assert find_gradients(creations).links == {"told": Link("exp", "autograd_node")}


def test_gradients_that_are_summed_when_a_node_has_run_are_no_work_of_it() -> None:
    creations = {
        "sin": forward("sin", 4, 5),
        "cos": forward("cos", 5, 6),
        "one": gradient("CosBackward0", 6),
        "other": gradient("SinBackward0", 5),
        "sum": gradient("SinBackward0", 5, "one", "other", op="add"),
    }
    found = find_gradients(creations)
    assert set(found.links) == {"one", "other"}
    place = found.places["sum"]
    assert place is not None and place.is_gradient_acc
    assert code(place) == "line of sin"


def test_a_sum_at_a_value_of_an_inner_gradient_stands_where_that_value_does() -> None:
    to_value = Edge(AutogradNode("MulBackward0", 8), 0)
    users = AutogradNode("PowBackward0", 12), AutogradNode("ExpBackward0", 10)
    added = gradient("ExpBackward0", 10, "one", "other", op="add")
    creations = {
        "sin": forward("sin", 4, 5),
        "mul": dataclasses.replace(gradient("SinBackward0", 5), since=7, until=8),
        "exp": forward("exp", 9, 10),
        "pow": forward("pow", 11, 12),
        "one": gradient("PowBackward0", 12),
        "other": gradient("ExpBackward0", 10),
        "sum": dataclasses.replace(added, edges=dict.fromkeys(users, (to_value,))),
    }
    found = find_gradients(creations)
    assert found.links["sum"] == Link("mul", "sum_of_gradients")
    assert code(found.places["sum"]) == code(found.places["mul"]) == "line of sin"


@pytest.mark.parametrize(
    ("op", "name", "is_linked"),
    [
        ("nll_loss_forward", "NllLossBackward0", True),
        ("relu", "ReluSquaredBackward0", True),
        ("mul", "MultiplyBackward0", False),
        ("forward_nll_loss", "NllLossBackward0", False),
    ],
)
def test_an_op_is_known_by_four_letters_that_its_name_begins_with(
    op: str, name: str, is_linked: bool
) -> None:
    creations = {op: forward(op, 4, 5), "grad": gradient(name, 5)}
    assert ("grad" in find_gradients(creations).links) is is_linked


@pytest.mark.parametrize("twice", [True, False])
def test_an_addition_of_a_nodes_own_values_is_a_sum_only_where_it_feeds_one_node_twice(
    twice: bool,
) -> None:
    creations = {
        "mul": forward("mul", 4, 5),
        "a": gradient("MulBackward0", 5),
        "b": gradient("MulBackward0", 5),
        "sum": gradient("MulBackward0", 5, "a", "b", op="add", twice=twice),
    }
    assert ("sum" in find_gradients(creations).links) is not twice


def test_the_value_that_a_gradient_begins_with_is_one_that_is_summed() -> None:
    creations = {
        "cos": forward("cos", 4, 5),
        "seed": Creation("aten.ones_like.default", (), ASKS, None, False, 1, 5, 5),
        "one": gradient("CosBackward0", 5),
        "sum": gradient("CosBackward0", 5, "seed", "one", op="add"),
    }
    assert "sum" not in find_gradients(creations).links
