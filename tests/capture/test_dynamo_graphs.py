"""A Dynamo graph leads source functions to lines, and knows whether another graph is its like."""

from types import SimpleNamespace
from typing import Any

import torch

from profiler_ext.capture.traces.dynamo_graphs import describe_dynamo_graph
from profiler_ext.capture.traces.nested_regions import DroppedTraces
from profiler_ext.recall.dynamo_graph import DynamoGraph
from profiler_ext.records.lineage import Frame, ModuleFrame
from tests.capture.fx_graphs import Graph, frame_text


def source(name: str, line: int, **meta: Any) -> dict[str, Any]:
    text = frame_text("/m/model.py", line, "forward", f"line {line}")
    return {"source_fn_stack": [(name, None)], "stack_trace": text, **meta}


def scope(**local: Any) -> SimpleNamespace:
    frame = SimpleNamespace(f_code=compile("", "<frame>", "exec"))
    traced = [frame.f_code]
    return SimpleNamespace(local_scope=local, global_scope={}, root_tx=frame, traced_code=traced)


def tripled(lines: tuple[int, int], detach_first: bool = False) -> DynamoGraph:
    """``y = x * 3`` and ``z = x.detach() * 3`` on the given lines, in one of the two orders."""
    graph = Graph()
    x = graph.given("x", 4)
    if detach_first:
        detached = graph.call(torch.detach, [x], **source("detach", lines[0]))
        z = graph.call(torch.mul, [detached, 3], **source("mul", lines[0]))
        y = graph.call(torch.mul, [x, 3], **source("mul_1", lines[1]))
    else:
        y = graph.call(torch.mul, [x, 3], **source("mul", lines[0]))
        detached = graph.call(torch.detach, [x], **source("detach", lines[1]))
        z = graph.call(torch.mul, [detached, 3], **source("mul_1", lines[1]))
    return describe_dynamo_graph(scope(), graph.module(y, z), DroppedTraces())


def test_the_same_code_on_other_lines_has_the_same_digest() -> None:
    assert tripled((3, 4)).digest == tripled((30, 40)).digest


def test_the_same_two_lines_swapped_have_another_digest() -> None:
    assert tripled((3, 4)).digest != tripled((3, 4), detach_first=True).digest


def test_other_edges_between_the_same_functions_have_another_digest() -> None:
    def chain(first: bool) -> DynamoGraph:
        graph = Graph()
        x = graph.given("x", 4)
        a = graph.call(torch.sin, [x], **source("sin", 1))
        b = graph.call(torch.cos, [a if first else x], **source("cos", 2))
        return describe_dynamo_graph(scope(), graph.module(a, b), DroppedTraces())

    assert chain(first=True).digest != chain(first=False).digest


def test_a_source_function_leads_to_its_line() -> None:
    assert tripled((3, 4)).sources["mul_1",].stack == (
        Frame("/m/model.py", 4, "forward", "line 4"),
    )


def test_a_name_that_two_nodes_carry_leads_nowhere() -> None:
    graph = Graph()
    x = graph.given("x", 4)
    a = graph.call(torch.sin, [x], **source("sin", 1))
    b = graph.call(torch.sin, [a], **source("sin", 2))
    c = graph.call(torch.cos, [b], **source("cos", 3))
    assert set(describe_dynamo_graph(scope(), graph.module(c), DroppedTraces()).sources) == {
        ("cos",)
    }


def test_the_model_in_the_frame_is_the_root_of_module_paths() -> None:
    graph = Graph()
    stack = {"1": ("L['model']", "m.GPT"), "2": ("L['model'].blocks[0]", "m.Block")}
    x = graph.given("x", 4)
    y = graph.call(torch.sin, [x], **source("sin", 1, nn_module_stack=stack))
    found = describe_dynamo_graph(
        scope(model=torch.nn.Linear(1, 1)), graph.module(y), DroppedTraces()
    )
    assert found.roots == ("L['model']",)
    assert found.sources["sin",].modules == (
        ModuleFrame("", "GPT"),
        ModuleFrame("blocks.0", "Block"),
    )
