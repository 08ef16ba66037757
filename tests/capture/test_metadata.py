"""What metadata says is looked at each time that it is asked, and what it says is one record."""

import sys
from pathlib import Path

import pytest
import torch

import profiler_ext
from profiler_ext.capture.traces.metadata import (
    NodeSnapshot,
    clear_lineage_cache,
    has_same_origin,
    lineage_of,
    main_of,
    stacks_of_lines,
)
from profiler_ext.records.lineage import Frame, Lineage
from profiler_ext.torch_compat import behaviour, process

FRAME = '  File "model.py", line {}, in forward\n    return x.sin()\n'


def meta(line=3, **others):
    return {
        "original_aten": torch.ops.aten.sin.default,
        "seq_nr": 7,
        "stack_trace": FRAME.format(line),
        "nn_module_stack": {"m": ("L['self'].layers.0", torch.nn.Linear)},
        "source_fn_stack": [("sin", torch.sin)],
        **others,
    }


def test_each_line_of_a_graph_s_code_has_the_stack_of_its_node():
    seen = {}

    def look(x):
        frame = sys._getframe(1)
        seen.update(own=frame.f_lineno, stacks=stacks_of_lines(frame))
        return x

    graph = torch.fx.Graph()
    looked = graph.call_function(look, (graph.placeholder("x"),))
    looked.meta.update(meta(line=3))
    sine = graph.call_function(torch.sin, (looked,))
    sine.meta.update(meta(line=4))
    graph.output(graph.call_function(torch.cos, (sine,)))  # no source line
    torch.fx.GraphModule({}, graph)(torch.ones(1))
    lines = {at: [frame.line for frame in stack] for at, stack in seen["stacks"].items()}
    assert lines == {seen["own"]: [3], seen["own"] + 1: [4]}
    assert stacks_of_lines(sys._getframe()) == {}


def test_nodes_that_say_the_same_have_one_lineage():
    assert lineage_of(meta()) is lineage_of(meta())


def test_each_part_of_what_is_reported_tells_lineages_apart():
    others = (
        meta(line=4),
        meta(seq_nr=8),
        meta(original_aten=torch.ops.aten.cos.default),
        meta(nn_module_stack={"m": ("L['self'].layers.1", torch.nn.Linear)}),
        meta(nn_module_stack={"m": ("L['self'].layers.0", torch.nn.Bilinear)}),
        meta(source_fn_stack=[("sin_1", torch.sin)]),
        meta(partitioner_tag="is_backward"),
        meta(is_gradient_acc=True),
        *([meta(autograd_backward=True)] if behaviour.TAGS_BACKWARD_NODES else []),
        meta(recompute="MUST_SAVE"),
        meta(custom={"part": "head"}),
        meta(profiler_ext_copied_from="aot0_sin"),
    )
    assert len({lineage_of(each) for each in (meta(), *others)}) == 1 + len(others)


def test_what_a_pass_writes_into_metadata_is_seen():
    written = meta()
    before = lineage_of(written)
    written["nn_module_stack"]["n"] = ("L['self'].layers.0.inner", torch.nn.Linear)
    assert [frame.path for frame in lineage_of(written).modules] == [
        *(frame.path for frame in before.modules),
        "L['self'].layers.0.inner",
    ]


def test_of_a_forward_only_what_the_node_lacks_is_read():
    own = meta(
        fwd_nn_module_stack={"m": ("other", torch.nn.Linear)}, fwd_source_fn_stack=[("f", 0)]
    )
    assert lineage_of(own) == lineage_of(meta())
    lacking = meta(nn_module_stack=None, fwd_nn_module_stack=meta()["nn_module_stack"])
    assert lineage_of(lacking) == lineage_of(meta())


def test_metadata_without_a_hash_is_read_all_the_same():
    odd = meta(nn_module_stack={"m": (["L['self'].layers.0"], torch.nn.Linear)})
    assert lineage_of(odd).modules[0].class_name == "Linear"


def test_other_keys_change_nothing_of_what_is_reported():
    own = meta()
    assert has_same_origin(own, {**own, "mutation_region_id": 0, "val": 1})
    assert not has_same_origin(own, {**own, "seq_nr": 9})


def test_what_is_known_is_let_go():
    before = lineage_of(meta())
    clear_lineage_cache()
    assert lineage_of(meta()) is not before
    assert lineage_of(meta()) == before


@pytest.mark.parametrize("is_training", [True, False])
def test_what_is_known_is_let_go_once_the_last_graph_of_a_function_is_compiled(
    fresh_torch: Path, monkeypatch: pytest.MonkeyPatch, is_training: bool
) -> None:
    let_go: list[str | None] = []
    forgets = "profiler_ext.capture.hooks.graphs.clear_lineage_cache"
    monkeypatch.setattr(forgets, lambda: let_go.append(process.current_compile_id()))
    profiler_ext.enable(strict=True)
    x = torch.ones(4, 4, requires_grad=is_training)
    y = torch.compile(lambda x: (x @ x).sum())(x)
    if is_training:
        y.backward()
    assert let_go == ["0/0"]


ADDED = "aten.add.Tensor"


@pytest.mark.parametrize(
    ("ops", "main"),
    [
        (("aten.mm.default", ADDED), 0),  # addmm
        (("aten.mm.default", "aten._to_copy.default", ADDED), 0),
        (("aten.mm.default", "aten.mm.default", ADDED), 2),  # both products, and their sum
        (("aten.mm.default", "aten.relu.default"), 1),
        (("aten.mul.Tensor", ADDED), 1),
    ],
)
def test_a_product_merged_with_an_addition_stands_for_the_product(
    ops: tuple[str, ...], main: int
) -> None:
    stack = (Frame("/src/model.py", 1, "forward", "x + y @ z"),)
    rows = [NodeSnapshot(op, Lineage(original_aten=op, stack=stack)) for op in ops]
    assert main_of(rows) == rows[main]
