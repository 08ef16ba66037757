import pytest

from profiler_ext.kineto import names


def test_a_marker_with_a_key_yields_the_key():
    name = "## Call CompiledFxGraph fhzsyseywxyfoxb7 ##"
    assert (names.is_graph_marker(name), names.graph_key(name)) == (True, "fhzsyseywxyfoxb7")


def test_a_marker_of_a_bypassed_cache_is_a_marker_without_key():
    name = "## Call CompiledFxGraph None ##"
    assert (names.is_graph_marker(name), names.graph_key(name)) == (True, None)


def test_another_event_is_no_marker():
    assert (names.is_graph_marker("aten::mm"), names.graph_key("aten::mm")) == (False, None)


@pytest.mark.parametrize(
    ("function", "name", "value"),
    [
        (names.compile_id, "Torch-Compiled Region: 0/0", "0/0"),
        (names.compile_id, "Torch-Compiled Region: !0/1/0", "!0/1/0"),
        (names.compile_id, "CompiledFunction", None),
        (
            names.evaluated_function,
            "autograd::engine::evaluate_function: CompiledFunctionBackward",
            names.COMPILED_BACKWARD,
        ),
        (names.evaluated_function, names.COMPILED_BACKWARD, None),
        (names.step_number, "ProfilerStep#12", 12),
        (names.step_number, "ProfilerStep#x", None),
        (names.optimizer_step, "Optimizer.step#AdamW.step", "AdamW"),
        (names.optimizer_step, "Optimizer.zero_grad#AdamW.zero_grad", None),
        (names.optimizer_zero_grad, "Optimizer.zero_grad#AdamW.zero_grad", "AdamW"),
        (names.kernel_name, "graph_0_triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        (names.kernel_name, "triton_poi_fused_graph_0_x", "triton_poi_fused_graph_0_x"),
    ],
)
def test_names_are_parsed(function, name, value):
    assert function(name) == value


@pytest.mark.parametrize(
    "name",
    [
        "cudaLaunchKernel",
        "cudaLaunchKernelExC",
        "cuLaunchKernel",
        "cuLaunchKernelEx",
        "cudaGraphLaunch",
        "cudaMemsetAsync",
        "cudaMemcpyAsync",
        "hipModuleLaunchKernel",
        "hipExtModuleLaunchKernel",
        "urEnqueueKernelLaunch",
        "zeCommandListAppendLaunchKernel",
        "zeCommandListAppendMemoryCopy",
    ],
)
def test_launch_calls_are_known(name):
    assert names.is_launch_call(name)


@pytest.mark.parametrize(
    "name", ["cudaDeviceSynchronize", "cudaStreamIsCapturing", "cudaGetErrorString", "aten::mm"]
)
def test_other_calls_launch_nothing(name):
    assert not names.is_launch_call(name)


def test_only_a_graph_launch_stands_for_many_kernels():
    calls = ["cudaGraphLaunch", "cudaLaunchKernel", "cudaGraphLaunch_v10000"]
    assert [names.is_graph_launch(call) for call in calls] == [True, False, True]


@pytest.mark.parametrize("graph", [None, 0, 12])
@pytest.mark.parametrize("module", [None, 3])
@pytest.mark.parametrize("copies", [(), (("aot0", 18), ("aot0_1", 41))])
def test_a_mark_tells_what_is_known_of_a_call(graph, module, copies):
    mark = names.call_mark(graph, module, copies)
    reported = (graph, module, copies)
    if reported == (None, None, ()):
        assert mark is None
        return
    assert mark is not None
    assert names.is_call_mark(mark)
    found = (names.marked_graph(mark), names.marked_module(mark), names.marked_copies(mark))
    assert found == reported


def test_nothing_else_is_a_mark():
    others = ["profiler_ext:", "profiler_ext: graph", "profiler_ext: graph 1 ", "graph 1"]
    assert not any(map(names.is_call_mark, others))
    assert [names.marked_graph(name) for name in others] == [None] * 4


def test_the_mark_of_a_call_names_the_compiles_that_it_copies():
    assert [names.copied_compile(call) for call in ("aot0", "aot0_1")] == ["aot0", "aot0"]


@pytest.mark.parametrize(
    ("given", "module"),
    [
        ("layers.0", "layers.0"),
        ("layers.0._orig_mod", "layers.0"),
        ("_orig_mod.layers.0._checkpoint_wrapped_module.mlp", "layers.0.mlp"),
        ("norm._orig_mod, output._orig_mod", "norm, output"),
        ("_orig_mod", None),
        ("my_orig_mod.x", "my_orig_mod.x"),
    ],
)
def test_a_sharded_module_is_named_without_the_parts_of_torchs_wrappers(given, module):
    assert names.sharded_module(f"FSDP::all_gather ({given})") == module
    assert names.sharded_module(f"FSDP::backward_prefetch for {given}") == module
