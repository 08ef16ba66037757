"""The launches in a generated wrapper's text are read in program order, never run."""

from textwrap import dedent

from profiler_ext.recall.wrapper_calls import WrapperCall, wrapper_calls


def calls(text: str) -> list[str]:
    return [call.callee for call in wrapper_calls(dedent(text))["call"]]


def test_every_kind_of_launch_is_found_in_program_order() -> None:
    text = """
        cpp_fused_add_0 = async_compile.cpp_pybinding([], '')
        def call(args):
            arg0_1, = args
            with torch.cuda._DeviceGuard(0):
                buf0 = empty_strided_cuda((4,), (1,), torch.float32)
                stream0 = get_raw_stream(0)
                triton_poi_fused_add_0.run(arg0_1, buf0, 4, stream=stream0)
                extern_kernels.mm(arg0_1, buf0, out=buf0)
                buf1 = torch.ops.aten.sort.default(buf0)
                del arg0_1
            cpp_fused_add_0(buf0)
            return (buf0, )
    """
    assert calls(text) == [
        "triton_poi_fused_add_0",
        "extern_kernels.mm",
        "torch.ops.aten.sort.default",
        "cpp_fused_add_0",
    ]


def test_partitions_are_followed_where_the_runner_calls_them() -> None:
    text = """
        def partition_0(args):
            triton_poi_fused_a_0.run(args)
            return ()
        def partition_1(args):
            triton_poi_fused_b_1.run(args)
            return ()
        class Runner:
            def call(self, args):
                partition_args = args
                (buf0,) = self.partitions[1](partition_args)
                extern_kernels.mm(buf0, buf0, out=buf0)
                (buf1,) = self.partitions[0](partition_args)
                return (buf1,)
    """
    assert calls(text) == ["triton_poi_fused_b_1", "extern_kernels.mm", "triton_poi_fused_a_0"]


def test_the_last_stage_of_partial_sums_in_a_workspace_is_a_launch() -> None:
    text = """
        def call(args):
            workspace_0 = empty_strided((256,), (1,))
            triton_per_fused_norm_0.run(workspace_0)
            buf7 = workspace_0[0:256].view(4, 64).sum(dim=0).to(torch.bfloat16)
            buf8 = buf7.sum(dim=0)
    """
    assert wrapper_calls(dedent(text))["call"] == (
        WrapperCall("triton_per_fused_norm_0", None, generated=True),
        WrapperCall("sum", "buf7", generated=False, partial=True),
    )


def test_generated_and_library_calls_are_distinguished() -> None:
    text = "def call(args):\n    cpp_fused_0(args)\n    extern_kernels.bmm(args)\n"
    assert [call.generated for call in wrapper_calls(text)["call"]] == [True, False]


def test_text_that_is_no_python_wrapper_has_no_launches() -> None:
    assert wrapper_calls("#include <torch/csrc/inductor/cpp_wrapper/cpu.h>") == {}
    assert wrapper_calls("def other(args):\n    cpp_fused_0(args)\n") == {}


def test_a_nested_graph_s_function_has_its_launches_to_itself():
    text = """
        def true_graph_0(args):
            cpp_fused_sin_1(args)
        def call(args):
            cpp_fused_sum_0(args)
            if buf2.item():
                buf3 = true_graph_0(true_graph_0_args)
            else:
                extern_kernels.mm(a, b, out=buf4)
        """
    assert {
        name: [c.callee for c in calls] for name, calls in wrapper_calls(dedent(text)).items()
    } == {
        "true_graph_0": ["cpp_fused_sin_1"],
        "call": ["cpp_fused_sum_0", "extern_kernels.mm"],
    }


def test_a_launch_has_the_ops_of_the_comment_above_it_and_no_other_s() -> None:
    text = """
        def call(args):
            # Topologically Sorted Source Nodes: [a, b], Original ATen: [aten.mul, aten.sin]
            stream0 = get_raw_stream(0)
            triton_poi_fused_mul_sin_0.run(arg0_1, buf0, 4, stream=stream0)
            cpp_fused_add_0(buf0)
            # Unsorted Source Nodes: [], Original ATen: []
            triton_for_fused_1.run(buf0, stream=stream0)
    """
    found = [call.ops for call in wrapper_calls(dedent(text))["call"]]
    assert found == [frozenset({"aten.mul", "aten.sin"}), None, frozenset()]


def test_the_comment_above_a_kernel_s_definition_is_no_launch_s() -> None:
    text = """
        # Topologically Sorted Source Nodes: [c], Original ATen: [aten.sum]
        triton_red_fused_sum_2 = async_compile.triton('triton_red_fused_sum_2', '''
        ''')
        def while_loop_cond_graph_0(args):
            cpp_fused_lt_1(buf0)
        def call(args):
            while_loop_cond_graph_0(args)
    """
    found = wrapper_calls(dedent(text))["while_loop_cond_graph_0"]
    assert [(call.callee, call.ops) for call in found] == [("cpp_fused_lt_1", None)]


def test_the_cpp_wrapper_s_entry_is_read_and_nothing_around_it() -> None:
    text = """
cpp_wrapper_src = r'''
static inline void call_triton_poi_fused_gelu_0(const at::Tensor& in, int32_t device) {
    launchKernel(triton_poi_fused_gelu_0, grid_0, grid_1, grid_2, 4, 0, kernel_args_, stream_);
}
void inductor_entry_impl(
    AtenTensorHandle* input_handles
) {
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(2, size, stride, &buf0_handle));
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cuda_addmm_out(buf0, primals_2, primals_3, 1L, 1L));
    call_triton_poi_fused_gelu_0(buf0, 0, stream0);
    cpp_fused_sum_1((const float*)(buf8.data_ptr()), (float*)(buf9.data_ptr()));
    call_scale_kernel_2(buf1, 256L, 32L, 0, stream0);
} // inductor_entry_impl
'''
inductor_entry = CppWrapperCodeCache.load_pybinding(["x"], cpp_wrapper_src, "cuda")
"""
    assert [(c.callee, c.generated) for c in wrapper_calls(text)["call"]] == [
        ("aoti_torch_cuda_addmm_out", False),
        ("triton_poi_fused_gelu_0", True),
        ("cpp_fused_sum_1", True),
        ("scale_kernel_2", True),
    ]
