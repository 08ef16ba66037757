"""Which inputs of a graph another graph returned: forward, backward, in blocks and buckets."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import profiler_ext
from profiler_ext.recall.wrapper_calls import boundary_names
from profiler_ext.torch_compat.inputs import PassedTensors, Passing


def _recorded(step):
    profiler_ext.enable()
    for _ in range(2):
        step()
    with profiler_ext.profile() as profile:
        for _ in range(2):
            step()
            profile.step()
    return profile.session.analyses[0]


def _passed(analysis):
    """By direction and compile of both graphs: the input, and the tensor's bytes."""
    graphs = {graph.index: graph for graph in analysis.recording.graphs}
    return {
        (graph.is_backward, graphs[each.graph].compile_id, graph.compile_id): (
            each.name,
            each.bytes,
        )
        for graph in graphs.values()
        for each in graph.passed_inputs
        if graph.is_backward == graphs[each.graph].is_backward
    }


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # Dynamo's
@pytest.mark.usefixtures("fresh_torch")
def test_what_one_compiled_function_returns_and_the_next_is_given_is_known():
    scaled = torch.compile(lambda x, w: torch.relu(x * w))
    wave = torch.compile(lambda h: (h * 2).sin())
    x, w = torch.randn(64, 32, requires_grad=True), torch.randn(32, requires_grad=True)

    def step():
        wave(scaled(x, w)).backward(torch.ones(64, 32))

    passed = _passed(_recorded(step))
    moved = 64 * 32 * 4
    assert passed[False, "0/0", "1/0"][1] == moved
    assert passed[True, "1/0", "0/0"] == ("tangents_1", moved)
    assert len(passed) == 2  # no parameter, and nothing that a graph only passes on


@pytest.mark.usefixtures("fresh_torch")
def test_a_tensor_that_eager_code_made_in_between_is_none():
    first = torch.compile(lambda x: x * 2)
    second = torch.compile(lambda x: x.sin())

    def step():
        with torch.no_grad():
            second(first(torch.ones(64, 32)) + 1)

    assert _passed(_recorded(step)) == {}


@pytest.mark.usefixtures("fresh_torch")
def test_blocks_pass_a_buffer_to_the_next_call_of_the_same_graph():
    blocks = [torch.compile(nn.Sequential(nn.LayerNorm(32), nn.GELU())) for _ in range(3)]

    def step():
        h = torch.ones(64, 32)
        with torch.no_grad():
            for block in blocks:
                h = block(h)

    passed = _passed(_recorded(step))
    assert set(passed) == {(False, "0/0", "0/0")}


def test_a_freed_tensor_is_not_taken_for_one_at_its_address():
    passed, seen = PassedTensors(), []
    for _ in range(100):
        passed.keep(0, [torch.ones(1024)])
        seen += passed.taken([torch.ones(1024)])
    assert seen == []
    kept = torch.ones(1024)
    passed.keep(3, [None, kept])
    passed.keep(4, [kept])  # a graph that only passes it on
    assert passed.taken([nn.Parameter(kept), 2, kept[:512]]) == (Passing(2, 3, 1, 2048),)


def test_only_the_first_calls_of_a_graph_are_looked_at():
    passed = PassedTensors()
    assert sum(passed.is_wanted(0) for _ in range(100)) == 32
    assert passed.is_wanted(1)


WRAPPER = """
def partition_0(args):
    arg9_1, = args
    return (buf9, )

class Runner:
    def call(self, args):
        {given} = args
        args.clear()
        with torch.cuda._DeviceGuard(0):
            buf0 = empty_strided_cuda((4, ), (1, ), torch.float32)
        return ({returned}, )

runner = Runner(partitions=[])
call = runner.call
"""


@pytest.mark.parametrize(
    ("given", "returned", "names"),
    [
        ("arg0_1,", "buf0", (("arg0_1",), ("buf0",))),
        ("primals_1, s0", "buf0, primals_1", (("primals_1", "s0"), ("buf0", "primals_1"))),
        (
            "arg0_1, arg1_1",
            "reinterpret_tensor(buf2, (4, 2), (2, 1), 0), None, s0 + 1",
            (("arg0_1", "arg1_1"), ("buf2", None, None)),
        ),
    ],
)
def test_the_variables_of_a_wrapper_are_read_from_its_text(given, returned, names):
    assert boundary_names(WRAPPER.format(given=given, returned=returned)) == names


def test_a_wrapper_in_another_language_has_no_variables():
    assert boundary_names("void inductor_entry_impl() {}") == ((), ())
