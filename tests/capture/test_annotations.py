"""The user's labels (``torch.fx.traceback.annotate``), forward and backward, cold and warm.

They are no part of a cache key, so a warm artifact carries those of the run that compiled it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

import profiler_ext
from profiler_ext.profiling import switch
from profiler_ext.recall.dynamo_graph import DynamoGraph, Source
from profiler_ext.recall.lines import relabelled
from profiler_ext.records.lineage import Frame
from profiler_ext.records.provenance import GraphInstance, Provenance
from profiler_ext.records.vocabulary import CacheState
from profiler_ext.torch_compat import fx
from tests.compiling import fresh_torch, torch
from tests.fx_nodes import fx_node

__all__ = ["fresh_torch"]

Labels = tuple[tuple[str, str], ...]


def encoder(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    with torch.fx.traceback.annotate({"stage": "encoder", "ac_region_id": 3}):
        first = a @ b
    return first @ b


def decoder(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    with torch.fx.traceback.annotate({"stage": "decoder"}):
        first = a @ b
    return first @ b


def trained(function: Callable[..., torch.Tensor]) -> tuple[GraphInstance, ...]:
    """The graphs of a process of its own that trains once."""
    profiler_ext.disable()
    torch._dynamo.reset()
    profiler_ext.enable(strict=True)
    a, b = torch.randn(8, 8, requires_grad=True), torch.randn(8, 8)
    torch.compile(function)(a, b).sum().backward()
    capture = switch.current()
    assert capture is not None
    return capture.graphs


def labelled(graphs: tuple[GraphInstance, ...]) -> list[list[tuple[str, Labels]]]:
    """Return the labels of each matrix product."""
    return [
        [(n.name, n.lineage.annotation) for n in g.nodes if n.name.startswith("mm")] for g in graphs
    ]


def expected(labels: Labels) -> list[list[tuple[str, Labels]]]:
    forward: list[tuple[str, Labels]] = [("mm", labels), ("mm_1", ())]
    backward: list[tuple[str, Labels]] = [("mm_2", ()), ("mm_3", labels)]
    return [forward, backward]


@pytest.mark.usefixtures("fresh_torch")
def test_labels_are_those_of_the_source_that_runs() -> None:
    cold = trained(encoder)
    labels = (("ac_region_id", "3"), ("stage", "encoder"))
    assert labelled(cold) == expected(labels)
    for on, state in ((True, CacheState.AOT_HIT), (False, CacheState.FX_HIT)):
        with torch._functorch.config.patch(enable_autograd_cache=on):
            assert labelled(warm := trained(encoder)) == expected(labels)
            assert {graph.cache_state for graph in warm} == {state}
            assert labelled(other := trained(decoder)) == expected((("stage", "decoder"),))
            assert {graph.cache_state for graph in other} == {state}


ON_1, ON_2 = ((Frame("m.py", line, "f", "y = x @ x"),) for line in (1, 2))
OLD, NEW = (("stage", "old"),), (("stage", "new"),)


def graph(*places: tuple[tuple[Frame, ...], Labels]) -> DynamoGraph:
    return DynamoGraph(
        "d", (), None, {}, tuple(Source(stack, (), label) for stack, label in places)
    )


def test_equal_labels_on_several_lines_are_distinguished_by_the_line() -> None:
    nodes = tuple(
        fx_node(name, "aten.mm", stack=stack, annotation=label)
        for name, stack, label in (("a", ON_1, OLD), ("b", ON_2, OLD), ("c", ON_2, ()))
    )
    record = Provenance("", "", False, False, None, "d", nodes, ())
    record = dataclasses.replace(
        record, dynamo_stacks=(0, 1), dynamo_annotations=(OLD, OLD), dynamo_digest="d"
    )
    moved = relabelled(record, graph((ON_1, NEW), (ON_2, ())))
    assert [node.lineage.annotation for node in moved] == [NEW, (), ()]
    assert relabelled(record, graph((ON_1, OLD), (ON_2, OLD))) == nodes


def test_a_label_that_is_an_object_has_no_address_in_it() -> None:
    meta = {"custom": {"config": object(), "part": 1.5, "on": None}}
    assert fx.annotation(meta) == (("config", "object"), ("on", "None"), ("part", "1.5"))
