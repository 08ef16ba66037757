"""What generated code tells of a graph that nobody saw compiled, in the form that torch writes."""

from __future__ import annotations

from textwrap import dedent

from profiler_ext.recall.dynamo_graph import DynamoGraph, Source
from profiler_ext.recall.generated_code import (
    GeneratedCode,
    PrintedGraph,
    graph_from_code,
    library_nodes,
    read_graph,
)
from profiler_ext.recall.wrapper_calls import wrapper_calls
from profiler_ext.records.evidence import LineEvidence
from profiler_ext.records.lineage import Frame, Lineage
from profiler_ext.records.vocabulary import SiteKind
from profiler_ext.source_paths import absolute, shorten

GRAPH = """
class GraphModule(torch.nn.Module):
    def forward(self, primals_1: "f32[8, 4][4, 1]cuda:0", primals_2: "f32[4, 4][4, 1]cuda:0", primals_3: "f32[4, 4]"):
        # File: model.py:7 in forward, code: h = x.sin() @ w
        sin: "f32[8, 4][4, 1]cuda:0" = torch.ops.aten.sin.default(primals_1)
        permute: "f32[4, 4][1, 4]cuda:0" = torch.ops.aten.permute.default(primals_2, [1, 0])
        mm: "f32[8, 4][4, 1]cuda:0" = torch.ops.aten.mm.default(sin, permute);  sin = None

        # File: model.py:8 in forward, code: return (h * 2) @ v
        mul: "f32[8, 4][4, 1]cuda:0" = torch.ops.aten.mul.Tensor(mm, 2)
        mm_1: "f32[8, 4][4, 1]cuda:0" = torch.ops.aten.mm.default(mul, primals_3)

        # No stacktrace found for following nodes
        sum_1: "f32[4][1]cuda:0" = torch.ops.aten.sum.dim_IntList(mm_1, [0])
        return (sum_1, primals_1)
"""  # noqa: E501

CALL = """
def call(args):
    primals_1, primals_2, primals_3 = args
    buf0 = empty_strided_cuda((8, 4), (4, 1), torch.float32)
    triton_poi_fused_sin_0.run(primals_1, buf0, 32, stream=stream0)
    buf1 = empty_strided_cuda((8, 4), (4, 1), torch.float32)
    extern_kernels.mm(buf0, reinterpret_tensor(primals_2, (4, 4), (1, 4), 0), out=buf1)
    buf2 = buf0; del buf0  # reuse
    triton_poi_fused_mul_1.run(buf1, buf2, 32, stream=stream0)
    extern_kernels.mm(buf2, primals_3, out=buf1)
    triton_red_fused_sum_2.run(buf1, buf9, 8, 4, stream=stream0)
    return (buf9, primals_1, )
"""
APART = GRAPH.replace("mm.default(mul, primals_3)", "mm.default(sin, primals_3)")
"""The same with two products that do not follow from one another."""

LINES = ((7, "h = x.sin() @ w"), (8, "return (h * 2) @ v"))
PLACES = tuple(
    Source((Frame(shorten(absolute("model.py")), line, "forward", code),), ())
    for line, code in LINES
)


def graph(text: str = GRAPH) -> PrintedGraph:
    found = read_graph(dedent(text))
    assert found is not None
    return found


def attributed(call: str, text: str = GRAPH, *, is_backward: bool = False) -> dict[int, str]:
    """The node of each library call that has one, by the place of the call."""
    return library_nodes(graph(text), wrapper_calls(call)["call"], is_backward=is_backward)


def reported(dynamo: DynamoGraph | None) -> list[tuple[str, ...]]:
    """The nodes of each call site, as a process with this Dynamo graph is told of them."""
    record, _ = graph_from_code(GeneratedCode(CALL, dedent(GRAPH), False, False, "2.13.0"), dynamo)
    assert record is not None
    return [site.nodes for site in record.call_sites]


def test_a_library_call_is_the_node_that_reads_the_inputs_which_it_is_given() -> None:
    swapped = CALL.replace("primals_3", "W").replace("primals_2, (", "primals_3, (")
    assert attributed(CALL, APART) == {1: "mm", 3: "mm_1"}
    assert attributed(swapped.replace("W", "primals_2"), APART) == {1: "mm_1", 3: "mm"}


def test_a_reused_variable_is_not_the_input_that_it_was() -> None:
    reused = CALL.replace("buf2, primals_3,", "buf2, buf3,")
    reused = reused.replace("buf2 = buf0;", "buf3 = primals_3; buf2 = buf0;")
    assert attributed(reused, APART) == {1: "mm"}


def test_calls_that_are_given_no_input_are_nodes_that_follow_from_one_another() -> None:
    """Under autocast each weight is cast first, so that a call sees buffers alone."""
    cast = CALL.replace("primals_3, out", "buf8, out").replace("tensor(primals_2", "tensor(buf7")
    assert attributed(cast) == {1: "mm", 3: "mm_1"}
    assert attributed(cast, APART) == {}


def test_where_a_template_may_stand_for_a_node_calls_are_not_counted() -> None:
    cast = CALL.replace("primals_3, out", "buf8, out").replace("tensor(primals_2", "tensor(buf7")
    assert attributed(cast.replace("triton_red_fused", "triton_tem_fused")) == {}
    assert attributed(CALL.replace("triton_red_fused", "triton_tem_fused")) == {1: "mm", 3: "mm_1"}


def test_two_calls_of_what_may_be_one_node_stay_open() -> None:
    call = "    extern_kernels.mm(buf2, primals_3"
    again = CALL.replace(call, f"    extern_kernels.mm(buf3, primals_3)\n{call}")
    assert attributed(again) == {1: "mm"}
    both = CALL.replace("mm(buf2, primals_3", "mm(buf2, primals_2")
    assert attributed(both) == {}


def test_a_call_that_reads_a_mutated_input_is_not_attributed_by_it() -> None:
    copied = "torch.ops.aten.copy_.default(primals_3, mm)\n        return (sum_1"
    mutating = APART.replace("return (sum_1", f'copy_: "f32[4, 4]" = {copied}')
    assert attributed(CALL, mutating) == {1: "mm"}


def test_of_a_backward_graph_only_what_gradients_flow_into_is_attributed() -> None:
    """What runs again there is the forward's, and the text does not tell it from other work."""
    backward = GRAPH.replace("primals_3", "tangents_1")
    assert attributed(CALL.replace("primals_3", "tangents_1"), backward, is_backward=True) == {
        3: "mm_1"
    }


def test_without_a_graph_of_this_process_or_with_a_gradient_in_it_no_call_is_attributed() -> None:
    nobody = [()] * 5
    sources = {"mm": Lineage(evidence=LineEvidence.COMPILED)}
    plain = DynamoGraph("d", (), None, {}, PLACES)
    copied = DynamoGraph("d", (), None, {}, PLACES, copy_sources=sources)
    differentiating = DynamoGraph("d", (), None, {}, PLACES, takes_gradient=True)
    assert reported(plain) == [(), ("mm",), (), ("mm_1",), ()]
    assert [reported(None), reported(copied), reported(differentiating)] == [nobody] * 3


def test_a_call_whose_line_this_process_has_not_is_not_attributed() -> None:
    changed = DynamoGraph("d", (), None, {}, PLACES[:1])
    assert reported(changed) == [(), ("mm",), (), (), ()]


def test_call_sites_are_those_of_the_wrapper_in_order() -> None:
    record, _ = graph_from_code(GeneratedCode(CALL, dedent(GRAPH), True, False, "2.13.0"), None)
    assert record is not None
    assert (record.is_inferred, record.is_backward, record.torch_version) == (True, True, "2.13.0")
    assert [(site.path, site.kind, site.kernel, site.op) for site in record.call_sites] == [
        ("0", SiteKind.TRITON, "triton_poi_fused_sin_0", None),
        ("1", SiteKind.EXTERN, "extern_kernels.mm", "aten::mm"),
        ("2", SiteKind.TRITON, "triton_poi_fused_mul_1", None),
        ("3", SiteKind.EXTERN, "extern_kernels.mm", "aten::mm"),
        ("4", SiteKind.TRITON, "triton_red_fused_sum_2", None),
    ]


def test_a_text_that_is_not_understood_tells_nothing() -> None:
    nested = CALL + "\ndef subgraph_0(args):\n    extern_kernels.mm(args, args)\n"
    texts = [(CALL, ""), ("", GRAPH), (nested, GRAPH), ("def call(", GRAPH), (CALL, "\0")]
    codes = [GeneratedCode(source, dedent(text), False, False, "") for source, text in texts]
    dynamo = DynamoGraph("d", (), None, {}, (Source((), ()),))
    assert [graph_from_code(code, dynamo) for code in codes] == [(None, ())] * 5


def test_a_printed_graph_gives_nodes_edges_and_the_innermost_line() -> None:
    nodes = graph().nodes
    assert list(nodes) == ["sin", "permute", "mm", "mul", "mm_1", "sum_1"]
    assert (nodes["mm"].target, nodes["mm"].inputs) == ("aten.mm.default", ("sin", "permute"))
    frames = [node.frame and (node.frame.line, node.frame.code) for node in nodes.values()]
    first, second = LINES
    assert frames == [first, first, first, second, second, None]
    assert graph().inputs == {"primals_1", "primals_2", "primals_3"}


def test_a_text_that_is_not_python_is_no_graph() -> None:
    assert read_graph("class <lambda>(torch.nn.Module):\n    def forward(self):\n") is None
    assert read_graph("") is None
