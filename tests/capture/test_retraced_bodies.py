"""The bodies that a pass made are led node by node to those that stood there before."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from profiler_ext.capture.traces.metadata import NodeSnapshot
from profiler_ext.capture.traces.replacements import carried_graphs, retraced
from profiler_ext.records.lineage import Lineage
from tests.capture.fx_graphs import Graph, aten, frame_text

COND = torch.ops.higher_order.cond


def body(*ops: Any) -> torch.fx.GraphModule:
    """Return a graph of ops in a chain, each on a line of its own name."""
    graph = Graph()
    value = graph.given("x", 4)
    for op in ops:
        name = op.__name__.partition(".")[0]
        where = frame_text("/src/model.py", 1, name, f"{name}()")
        value = graph.call(op, [value], stack_trace=where)
    return graph.module(value)


def calling(name: str, **bodies: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Return a graph that calls others, by one call."""
    root, graph = torch.nn.Module(), Graph()
    for attribute, each in bodies.items():
        root.register_module(attribute, each)
    x = graph.given("x", 4)
    called = [graph.graph.get_attr(attribute) for attribute in bodies]
    graph.graph.output(graph.call(COND, [x, *called], name=name))
    return torch.fx.GraphModule(root, graph.graph)


def attributed(before: torch.fx.GraphModule, after: torch.fx.GraphModule) -> list[list[str]]:
    """Return the lines that the nodes of each body are led to."""
    call = NodeSnapshot("cond", Lineage())
    found = retraced(after, {"cond_1": (call,)}, carried_graphs(before))
    return [
        [row.lineage.stack[-1].function if row.lineage.stack else "" for (row,) in rows.values()]
        for rows in found.values()
    ]


SIN, EXP = (aten.sin.default, aten.cos.default), (aten.exp.default,)


def bare(*ops: Any) -> torch.fx.GraphModule:
    """Return the same as a pass makes it: nothing is said of any node."""
    gm = body(*ops)
    for node in gm.graph.nodes:
        node.meta.pop("stack_trace", None)
    return gm


def test_as_many_branches_as_before_are_attributed_in_their_order() -> None:
    before = calling("cond", yes=body(*SIN), no=body(*SIN))
    for node in before.no.graph.nodes:
        if node.op == "call_function":
            node.meta["stack_trace"] = frame_text("/src/model.py", 2, "no", "no()")
    after = calling("cond_1", yes=bare(*SIN), no=bare(*SIN))
    assert attributed(before, after) == [["sin", "cos"], ["no", "no"]]


def test_where_a_branch_went_the_one_that_is_left_is_attributed_by_its_ops() -> None:
    before = calling("cond", yes=body(*SIN), no=body(*EXP))
    assert attributed(before, calling("cond_1", left=bare(*EXP))) == [["exp"]]
    assert attributed(before, calling("cond_1", left=bare(*SIN))) == [["sin", "cos"]]


def test_where_a_branch_went_and_two_may_be_what_is_left_none_is_reported() -> None:
    before = calling("cond", yes=body(*SIN), no=body(*SIN))
    assert attributed(before, calling("cond_1", left=bare(*SIN))) == [["", ""]]
