from __future__ import annotations

import pytest

from profiler_ext.kineto import classify


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("triton_poi_fused_add_0", True),
        ("graph_0_cpp_fused_add_1", True),
        ("triton_tem_fused_flex_attention_1", True),
        ("triton_for_fused_3", True),
        ("triton_", False),
        ("triton_scan", False),
        ("addk_0", False),
        ("nvjet_sm90_tst_96x128", False),
        ("aten::mm", False),
    ],
)
def test_a_generated_kernel_is_known_by_its_name(name, expected):
    assert classify.is_generated_kernel(name) is expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aten::mm", True),
        ("mkldnn::_linear_pointwise", True),
        ("mylib::op.out", True),
        ("autograd::engine::evaluate_function: AddBackward0", False),
        ("torch::autograd::AccumulateGrad", False),
        ("AddBackward0", False),
        ("Torch-Compiled Region: 0/0", False),
        ("cpp_fused_add_0", False),
    ],
)
def test_a_dispatched_operator_is_known_by_its_name(name, expected):
    assert classify.is_dispatched_op(name) is expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("CachingAutotuner.benchmark_all_configs (dynamo_timed)", True),
        ("CachingAutotuner.coordinate_descent_tuning", True),
        ("Scheduler.codegen (dynamo_timed)", True),
        ("cudagraphify (dynamo_timed)", False),
        ("aten::mm", False),
    ],
)
def test_compile_work_is_known_by_its_name(name, expected):
    assert classify.is_compiling(name) is expected


def test_what_ran_is_called_alike_whatever_memory_it_was():
    asked = [
        ("Memset (Device)", "gpu_memset"),
        ("Memset (Unknown)", "gpu_memset"),
        ("Memcpy DtoD (Device -> Device)", "gpu_memcpy"),
        ("graph_0_triton_poi_fused_add_0", "kernel"),
        ("void gemm<float>(Params (*)())", "kernel"),
    ]
    assert [classify.work_name(*each) for each in asked] == [
        "Memset",
        "Memset",
        "Memcpy DtoD",
        "triton_poi_fused_add_0",
        "void gemm<float>(Params (*)())",
    ]
