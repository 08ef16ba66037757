"""What generated code tells of its call sites: texts in the form that torch 2.11 wrote on a GPU."""

from textwrap import dedent

from profiler_ext.capture.sites.wrapper_calls import wrapper_calls
from profiler_ext.capture.told.printed_graphs import PrintedGraph, read_graph
from profiler_ext.capture.told.told_sites import told_nodes

GRAPH = """
class GraphModule(torch.nn.Module):
    def forward(self, primals_1: "f32[8, 4][4, 1]cuda:0", primals_2: "f32[4, 4][4, 1]cuda:0"):
        # File: model.py:7 in forward, code: h = x.sin() * 2
        sin: "f32[8, 4][4, 1]cuda:0" = torch.ops.aten.sin.default(primals_1)
        mul: "f32[8, 4][4, 1]cuda:0" = torch.ops.aten.mul.Tensor(sin, 2);  sin = None

        # File: model.py:8 in forward, code: h = (h @ w).sin() * 2
        mm: "f32[8, 4][4, 1]cuda:0" = torch.ops.aten.mm.default(mul, primals_2)
        sin_1: "f32[8, 4][4, 1]cuda:0" = torch.ops.aten.sin.default(mm)
        mul_1: "f32[8, 4][4, 1]cuda:0" = torch.ops.aten.mul.Tensor(sin_1, 2);  sin_1 = None
        mm_1: "f32[8, 4][4, 1]cuda:0" = torch.ops.aten.mm.default(mul_1, primals_2)

        # No stacktrace found for following nodes
        sin_2: "f32[8, 4][4, 1]cuda:0" = torch.ops.aten.sin.default(mm_1)
        mul_2: "f32[8, 4][4, 1]cuda:0" = torch.ops.aten.mul.Tensor(sin_2, 2);  sin_2 = None
        sum_1: "f32[4][1]cuda:0" = torch.ops.aten.sum.dim_IntList(mul_2, [0])
        return (sum_1, primals_1)
"""

KERNELS = '''
# Topologically Sorted Source Nodes: [sin, h], Original ATen: [aten.sin, aten.mul]
# Source node to ATen node mapping:
#   h => mul
#   sin => sin
# Graph fragment:
#   %primals_1 : Tensor "f32[8, 4][4, 1]cuda:0" = PlaceHolder[target=primals_1]
#   %sin : Tensor "f32[8, 4][4, 1]cuda:0" = call_function[target=torch.ops.aten.sin.default](args = (%primals_1,), kwargs = {})
#   %mul : Tensor "f32[8, 4][4, 1]cuda:0" = call_function[target=torch.ops.aten.mul.Tensor](args = (%sin, 2), kwargs = {})
#   return %mul
triton_poi_fused_mul_sin_0 = async_compile.triton('triton_poi_fused_mul_sin_0', """
def triton_poi_fused_mul_sin_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    pass
""", device_str='cuda')


# Topologically Sorted Source Nodes: [h_2, out], Original ATen: [aten.mul, aten.sum]
# Graph fragment:
#   %mul_2 : Tensor "f32[8, 4][4, 1]cuda:0" = PlaceHolder[target=mul_2]
#   %mul_2 : Tensor "f32[8, 4][4, 1]cuda:0" = call_function[target=torch.ops.aten.mul.Tensor](args = (%sin_2, 2), kwargs = {})
#   %sum_1 : Tensor "f32[4][1]cuda:0" = call_function[target=torch.ops.aten.sum.dim_IntList](args = (%mul_2, [0]), kwargs = {})
#   return %buf9
triton_red_fused_sum_1 = async_compile.triton('triton_red_fused_sum_1', """
def triton_red_fused_sum_1(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK : tl.constexpr):
    pass
""", device_str='cuda')


# Topologically Sorted Source Nodes: [h_2, out], Original ATen: [aten.mul, aten.sum]
# Graph fragment:
#   %buf9 : Tensor "f32[4, 2][1, 4]cuda:0" = PlaceHolder[target=buf9]
#   %mul_2 : Tensor "f32[8, 4][4, 1]cuda:0" = call_function[target=torch.ops.aten.mul.Tensor](args = (%sin_2, 2), kwargs = {})
#   %sum_1 : Tensor "f32[4][1]cuda:0" = call_function[target=torch.ops.aten.sum.dim_IntList](args = (%mul_2, [0]), kwargs = {})
#   return %sum_1
triton_per_fused_sum_2 = async_compile.triton('triton_per_fused_sum_2', """
def triton_per_fused_sum_2(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK : tl.constexpr):
    pass
""", device_str='cuda')
'''  # noqa: E501

CALL = """
def call(args):
    primals_1, primals_2 = args
    buf0 = empty_strided_cuda((8, 4), (4, 1), torch.float32)
    # Topologically Sorted Source Nodes: [sin, h], Original ATen: [aten.sin, aten.mul]
    triton_poi_fused_mul_sin_0.run(primals_1, buf0, 32, stream=stream0)
    buf1 = empty_strided_cuda((8, 4), (4, 1), torch.float32)
    extern_kernels.mm(buf0, primals_2, out=buf1)
    buf2 = buf0; del buf0  # reuse
    triton_poi_fused_mul_sin_0.run(buf1, buf2, 32, stream=stream0)
    buf3 = buf1; del buf1  # reuse
    extern_kernels.mm(buf2, primals_2, out=buf3)
    buf4 = buf2; del buf2  # reuse
    triton_poi_fused_mul_sin_0.run(buf3, buf4, 32, stream=stream0)
    buf9 = empty_strided_cuda((4, 2), (1, 4), torch.float32)
    triton_red_fused_sum_1.run(buf4, buf9, 8, 4, stream=stream0)
    buf10 = empty_strided_cuda((4, ), (1, ), torch.float32)
    triton_per_fused_sum_2.run(buf9, buf10, 4, 2, stream=stream0)
    return (buf10, primals_1, )
"""


def graph() -> PrintedGraph:
    found = read_graph(dedent(GRAPH))
    assert found is not None
    return found


def told(call: str, kernels: str = KERNELS) -> tuple[tuple[str, ...], ...]:
    source = kernels + call
    return told_nodes(source, graph(), wrapper_calls(source)["call"], is_backward=False).of_calls


def test_each_call_site_has_its_own_nodes_and_not_those_that_the_comment_repeats() -> None:
    assert told(CALL) == (
        ("sin", "mul"),
        ("mm",),
        ("sin_1", "mul_1"),
        ("mm_1",),
        ("sin_2", "mul_2"),
        ("sum_1",),
        ("sum_1",),
    )


def test_a_call_of_which_no_argument_is_known_stays_open() -> None:
    unknown = CALL.replace("run(buf1, buf2,", "run(elsewhere, buf2,")
    assert told(unknown)[1:5] == (("mm",), (), ("mm_1",), ("sin_2", "mul_2"))


def test_a_kernel_that_reads_what_no_name_tells_stays_open() -> None:
    strange = KERNELS.replace("%primals_1 : Tensor", "%buf77 : Tensor")
    assert told(CALL, strange)[0] == ()


def test_a_comment_whose_nodes_need_more_than_the_kernel_reads_is_not_believed() -> None:
    line = '#   %primals_1 : Tensor "f32[8, 4][4, 1]cuda:0" = PlaceHolder[target=primals_1]\n'
    assert told(CALL, KERNELS.replace(line, ""))[0] == ()


MUTATED = """
class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[4][1]cuda:0", arg1_1: "f32[4][1]cuda:0"):
        add: "f32[4][1]cuda:0" = torch.ops.aten.add.Tensor(arg0_1, arg1_1)
        mul: "f32[4][1]cuda:0" = torch.ops.aten.mul.Tensor(add, 2)
        copy_: "f32[4][1]cuda:0" = torch.ops.aten.copy_.default(arg0_1, add)
        seeds: "i64[2][1]cuda:0" = torch.ops.prims.inductor_seeds.default(2, device(type='cuda'))
        drawn: "i64[][]cuda:0" = torch.ops.prims.inductor_lookup_seed.default(seeds, 1)
        return (mul, drawn)
"""

MUTATING = """
# Graph fragment:
#   %copy_ : Tensor "f32[4][1]cuda:0" = PlaceHolder[target=copy_]
#   %arg1_1 : Tensor "f32[4][1]cuda:0" = PlaceHolder[target=arg1_1]
#   %add : Tensor "f32[4][1]cuda:0" = call_function[target=torch.ops.aten.add.Tensor]()
#   %mul : Tensor "f32[4][1]cuda:0" = call_function[target=torch.ops.aten.mul.Tensor]()
#   return %mul
triton_poi_fused_add_mul_0 = async_compile.triton('triton_poi_fused_add_mul_0', '''
def triton_poi_fused_add_mul_0(in_ptr0, in_ptr1, out_ptr0, xnumel):
''', device_str='cuda')

# Graph fragment:
#   %copy_ : Tensor "f32[4][1]cuda:0" = PlaceHolder[target=copy_]
#   %arg1_1 : Tensor "f32[4][1]cuda:0" = PlaceHolder[target=arg1_1]
#   %add : Tensor "f32[4][1]cuda:0" = call_function[target=torch.ops.aten.add.Tensor]()
#   %copy_ : Tensor "f32[4][1]cuda:0" = call_function[target=torch.ops.aten.copy_.default]()
#   return %buf5
triton_poi_fused_add_copy__1 = async_compile.triton('triton_poi_fused_add_copy__1', '''
def triton_poi_fused_add_copy__1(in_ptr0, in_ptr1, out_ptr0, xnumel):
    pass
''', device_str='cuda')

def call(args):
    arg0_1, arg1_1 = args
    buf0 = empty_strided_cuda((4, ), (1, ), torch.float32)
    triton_poi_fused_add_mul_0.run(arg0_1, arg1_1, buf0, 4, stream=stream0)
    triton_poi_fused_add_copy__1.run(arg0_1, arg1_1, arg0_1, 4, stream=stream0)
    aten.randint.low_out(-9223372036854775808, 9223372036854775807, [2], out=buf6)
"""


def test_a_mutated_input_is_read_as_it_was_before_and_the_kernel_that_mutates_copies() -> None:
    """Comments name the input as it is after its mutation, and what is written by no name."""
    printed = read_graph(MUTATED)
    assert printed is not None
    calls = wrapper_calls(MUTATING)["call"]
    assert told_nodes(MUTATING, printed, calls, is_backward=False).of_calls == (
        ("add", "mul"),
        ("add", "copy_"),
        ("drawn",),
    )


def test_a_printed_graph_gives_nodes_edges_and_the_innermost_line() -> None:
    nodes = graph().nodes
    assert list(nodes)[:6] == ["sin", "mul", "mm", "sin_1", "mul_1", "mm_1"]
    assert (nodes["mm"].target, nodes["mm"].inputs) == ("aten.mm.default", ("mul", "primals_2"))
    frames = [node.frame and (node.frame.line, node.frame.code) for node in nodes.values()]
    assert frames == [(7, "h = x.sin() * 2")] * 2 + [(8, "h = (h @ w).sin() * 2")] * 4 + [None] * 3
    assert graph().inputs == {"primals_1": "f32[8, 4]", "primals_2": "f32[4, 4]"}


def test_a_text_that_is_not_python_is_no_graph() -> None:
    assert read_graph("class <lambda>(torch.nn.Module):\n    def forward(self):\n") is None
    assert read_graph("") is None


BACKWARD = """
class GraphModule(torch.nn.Module):
    def forward(self, addmm: "f32[8][1]cuda:0", addmm_1: "f32[8][1]cuda:0", tangents_1: "f32[8][1]cuda:0"):
        # File: model.py:7 in forward, code: h = F.gelu(self.up(x))
        mul_3: "f32[8][1]cuda:0" = torch.ops.aten.mul.Tensor(addmm_1, 0.7)
        erf_1: "f32[8][1]cuda:0" = torch.ops.aten.erf.default(mul_3);  mul_3 = None
        mul_5: "f32[8][1]cuda:0" = torch.ops.aten.mul.Tensor(addmm_1, -0.5)
        add: "f32[8][1]cuda:0" = torch.ops.aten.add.Tensor(erf_1, mul_5)
        mul_6: "f32[8][1]cuda:0" = torch.ops.aten.mul.Tensor(tangents_1, add)
        mul: "f32[8][1]cuda:0" = torch.ops.aten.mul.Tensor(addmm, 0.7)
        erf: "f32[8][1]cuda:0" = torch.ops.aten.erf.default(mul);  mul = None
        mul_7: "f32[8][1]cuda:0" = torch.ops.aten.mul.Tensor(addmm, -0.5)
        add_1: "f32[8][1]cuda:0" = torch.ops.aten.add.Tensor(erf, mul_7)
        mul_8: "f32[8][1]cuda:0" = torch.ops.aten.mul.Tensor(mul_6, add_1)
        return mul_8
"""  # noqa: E501

DIFFERENTIATING = '''
# Source node to ATen node mapping:
#   add => add
#   h_1 => erf_1, mul_3
#   mul_5 => mul_5
#   renamed => mul_6
# Graph fragment:
#   %tangents_1 : Tensor "f32[8][1]cuda:0" = PlaceHolder[target=tangents_1]
#   %addmm_1 : Tensor "f32[8][1]cuda:0" = PlaceHolder[target=addmm_1]
#   %mul_3 : Tensor "f32[8][1]cuda:0" = call_function[target=torch.ops.aten.mul.Tensor]()
#   %erf_1 : Tensor "f32[8][1]cuda:0" = call_function[target=torch.ops.aten.erf.default]()
#   %mul_5 : Tensor "f32[8][1]cuda:0" = call_function[target=torch.ops.aten.mul.Tensor]()
#   %add : Tensor "f32[8][1]cuda:0" = call_function[target=torch.ops.aten.add.Tensor]()
#   %mul_6 : Tensor "f32[8][1]cuda:0" = call_function[target=torch.ops.aten.mul.Tensor]()
#   return %mul_6
triton_poi_fused_gelu_0 = async_compile.triton('triton_poi_fused_gelu_0', """
def triton_poi_fused_gelu_0(in_ptr0, in_ptr1, out_ptr0, xnumel):
    pass
""", device_str='cuda')

def call(args):
    addmm, addmm_1, tangents_1 = args
    buf0 = empty_strided_cuda((8, ), (1, ), torch.float32)
    # Topologically Sorted Source Nodes: [h_1, mul_5, add, renamed], Original ATen: [aten.gelu]
    triton_poi_fused_gelu_0.run(tangents_1, addmm_1, buf0, 8, stream=stream0)
    buf1 = empty_strided_cuda((8, ), (1, ), torch.float32)
    # Topologically Sorted Source Nodes: [h, mul_7, add_1, mul_8], Original ATen: [aten.gelu]
    triton_poi_fused_gelu_0.run(buf0, addmm, buf1, 8, stream=stream0)
'''


def test_copies_of_recomputed_nodes_are_recomputed_and_what_a_gradient_flows_into_never_is() -> (
    None
):
    printed = read_graph(BACKWARD)
    assert printed is not None
    calls = wrapper_calls(DIFFERENTIATING)["call"]
    found = told_nodes(DIFFERENTIATING, printed, calls, is_backward=True)
    assert found.of_calls == (
        ("mul_3", "erf_1", "mul_5", "add", "mul_6"),
        ("mul", "erf", "mul_7", "add_1", "mul_8"),
    )
    assert found.recomputed == {"mul_3", "erf_1", "mul", "erf"}
