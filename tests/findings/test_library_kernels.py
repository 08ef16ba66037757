"""Facts about the table of library kernels, and about the two rules that judge by it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import profiler_ext
from profiler_ext.findings import Confidence, SavingPer
from profiler_ext.findings.library_kernels import Attention, Layer, is_newer, table
from profiler_ext.findings.rules import (
    attention_backend,
    dtype_conversion,
    far_from_roofline,
    misaligned_matmul,
)
from tests.attribution.recordings import FIXTURES
from tests.findings.stepping import CPU, US, Script, is_silent, judged, only
from tests.handmade import Mark

ALIGN_1 = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>"
ALIGN_8 = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_32x6_nt_align8>"
NVJET = "nvjet_sm90_tst_192x192_64x3_2x1_v_bz_coopB_TNN"
CUDNN = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7"
EFFICIENT_F32 = "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)"
EFFICIENT_BF16 = "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention)"
CALL = "aten::scaled_dot_product_attention"
H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"


def shaped(*operands: tuple[str, tuple[int, ...]]) -> dict[str, Any]:
    """The arguments of an op's event whose inputs' shapes were recorded; an absent one is ""."""
    return {
        "Input Dims": [list(sizes) for _, sizes in operands],
        "Input type": [dtype for dtype, _ in operands],
        "Input Strides": [_strides(sizes) for _, sizes in operands],
        "Concrete Inputs": [""] * len(operands),
    }


def _strides(sizes: tuple[int, ...]) -> list[int]:
    result = [1] * len(sizes)
    for at in range(len(sizes) - 2, -1, -1):
        result[at] = result[at + 1] * sizes[at + 1]
    return result


BF16 = "c10::BFloat16"


def product(script: Script, kernel: str, *sizes: int, op: str = "aten::mm", us: int = 600) -> None:
    """Launch a product of rows, columns and an inner size; without sizes none are recorded."""
    script.launch(kernel, us * US, op=op)
    if sizes:
        rows, columns, inner = sizes
        at = len(script.marks) - 3
        given = shaped((BF16, (rows, inner)), (BF16, (inner, columns)))
        mark = script.marks[at]
        script.marks[at] = replace(mark, args={**mark.args, **given})


def attention(
    kernel: str, op: str, *operands: tuple[str, tuple[int, ...]], within: tuple[str, ...] = ()
) -> Script:
    """A step that calls attention: the op is within torch's call, and so are others."""
    script = Script()
    begins = script.now_ns
    script.launch(kernel, 900 * US, op=op, cost_ns=40 * US)
    script.marks += [Mark(name, "cpu_op", CPU, begins + 1 * US, 1 * US) for name in within]
    around = shaped(*operands) if operands else {}
    script.marks.append(Mark(CALL, "cpu_op", CPU, begins, 41 * US, around))
    script.now_ns = begins + 42 * US
    script.wait()
    script.end_step()
    return script


def step(script: Script) -> Any:
    """The analysis of a step that waits for its device."""
    script.wait()
    script.end_step()
    return script.analysis()


def test_less_alignment_costs_more_whatever_the_product() -> None:
    for kind in ("output", "input_gradient", "weight_gradient"):
        parts = [table().typical_fraction("bfloat16", kind, each) for each in (1, 2, 4, 8)]
        assert parts[0] is not None and parts[1] is not None and parts[3] is not None
        assert 0.1 < parts[0] < parts[1] < 0.5 < parts[3] < 1
    assert table().typical_fraction("float64", "output", 1) is None


def test_a_vocabulary_is_padded_to_the_multiple_that_takes_least() -> None:
    odd = Layer(16_368, 768, 50_257)
    result = table().padded("bfloat16", "output", odd)
    assert result is not None
    assert result[0] == Layer(16_368, 768, 50_304)
    assert 0.1 < result[1] < 0.2
    assert table().padded("int8", "output", odd) is None


def test_what_a_causal_mask_costs_is_the_ratio_of_two_rows_of_the_table() -> None:
    now = Attention("bfloat16", "bool", 64, 1024, has_backward=True)
    part = table().attention_fraction(("cudnn", now), replace(now, mask="causal"), device=H100)
    ratios = [
        (then[0] + then[1]) / (took[0] + took[1])
        for shape in ((16, 12, 12, 1024, 64), (8, 8, 8, 1024, 64))
        if (took := table()._attention["bfloat16", "bool", shape]["cudnn"])
        and (then := table()._attention["bfloat16", "causal", shape]["cudnn"])
    ]
    assert part in ratios


def test_older_gpus_are_not_promised_the_kernels_of_newer_ones() -> None:
    assert is_newer(H100)
    assert not is_newer(A100)
    now = Attention("bfloat16", "causal", 64, 1024, has_backward=True)
    new, old = (
        table().attention_fraction(("efficient", now), now, device=device)
        for device in (H100, A100)
    )
    assert new is not None and old is not None
    assert new < old < 1


def test_a_product_by_a_kernel_that_loads_single_elements_is_judged_by_its_name() -> None:
    script = Script()
    product(script, ALIGN_1)
    product(script, ALIGN_1)
    found = only(misaligned_matmul.RULE, step(script))
    part = table().typical_fraction("bfloat16", "output", 1)
    assert part is not None
    assert found.est_saving_ns == 2 * int((1 - part) * 600 * US)
    assert (found.confidence, found.location.kernel) == (Confidence.ESTIMATED, ALIGN_1)
    assert "--shapes" in found.remedy
    assert found.evidence[-1].value == table().device


def test_with_shapes_the_sizes_are_named_and_the_nearest_layer_counts() -> None:
    script = Script()
    product(script, ALIGN_1, 8192, 50_257, 768)
    found = only(misaligned_matmul.RULE, step(script))
    assert "50,257 to 50,304" in found.remedy
    padded = table().padded("bfloat16", "output", Layer(8192, 768, 50_257))
    assert padded is not None
    assert found.est_saving_ns == int((1 - padded[1]) * 600 * US)


def test_aligned_products_of_the_recording_outweigh_the_table() -> None:
    script = Script()
    product(script, ALIGN_1, 8192, 50_257, 768, us=6000)
    product(script, NVJET, 8192, 50_304, 768, us=1000)
    found = only(misaligned_matmul.RULE, step(script))
    assert found.est_saving_ns == pytest.approx(5000 * US, abs=US)
    assert found.evidence[-1].value == "aligned products of this recording"


def test_an_older_kernel_counts_if_a_size_is_odd_and_a_sibling_is_faster() -> None:
    odd, even = Script(), Script()
    for script, words in ((odd, 50_257), (even, 50_264)):
        product(script, ALIGN_8, words, 768, 8192, us=2000)
        product(script, NVJET, 8192, 50_304, 768, us=1000)
    assert "50,257" in only(misaligned_matmul.RULE, step(odd)).remedy
    assert is_silent(misaligned_matmul.RULE, step(even))


@pytest.mark.parametrize(
    ("kernel", "op"),
    [
        (ALIGN_8, "aten::mm"),
        (NVJET, "aten::mm"),
        (ALIGN_1, "aten::bmm"),
        (ALIGN_1.replace("gemm", "fprop"), "aten::cudnn_convolution"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_tn_align1>", "aten::mm"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_tf32_128x128_tn_align4>", "aten::mm"),
    ],
)
def test_other_products_are_left_alone(kernel: str, op: str) -> None:
    script = Script()
    product(script, kernel, op=op)
    assert is_silent(misaligned_matmul.RULE, step(script))


def test_a_product_is_counted_by_one_rule() -> None:
    path = FIXTURES / "findings" / "far_from_roofline.session.pt.trace.json.gz"
    analysis = profiler_ext.load(path).analysis
    found = only(misaligned_matmul.RULE, analysis)
    # Padded it took 5.41 ms in place of 25.36 (docs/trust/recommendations.md)
    assert found.est_saving_ns == pytest.approx(19_880_000, rel=0.05)
    assert is_silent(far_from_roofline.RULE, analysis)


def test_attention_in_float32_would_be_many_times_as_fast_in_bfloat16() -> None:
    query = ("float", (16, 12, 1024, 64))
    made = attention(
        EFFICIENT_F32, "aten::_efficient_attention_forward", query, query, query, ("", ())
    )
    found = only(attention_backend.RULE, made.analysis())
    now = Attention("float32", "causal", 64, 1024, has_backward=False)
    part = table().attention_fraction(
        ("efficient", now), replace(now, dtype="bfloat16"), device="NVIDIA H200"
    )
    assert part is not None
    assert part < 0.15
    assert found.est_saving_ns == int((1 - part) * 900 * US)
    assert found.summary == "slow attention, by the efficient kernel: float32"


def test_a_mask_that_is_one_square_is_taken_to_be_causal() -> None:
    query = (BF16, (16, 12, 1024, 64))
    operands = (query, query, query, ("bool", (1024, 1024)))
    made = attention(CUDNN, "aten::_cudnn_attention_forward", *operands)
    found = only(attention_backend.RULE, made.analysis())
    assert "is_causal=True" in found.remedy
    assert 0.3 * 900 * US < found.est_saving_ns < 0.8 * 900 * US


@pytest.mark.parametrize("sizes", [(16, 1, 1, 1024), (16, 1, 1024, 1024), (1, 12, 1024, 1024)])
def test_masks_of_padding_and_biases_are_reported_without_an_estimate(
    sizes: tuple[int, ...],
) -> None:
    query = (BF16, (16, 12, 1024, 64))
    made = attention(CUDNN, "aten::_cudnn_attention_forward", query, query, query, (BF16, sizes))
    found = only(attention_backend.RULE, made.analysis())
    assert (found.saving_per, found.est_saving_ns) == (SavingPer.UNKNOWN, 0)


def test_without_shapes_the_ops_within_the_call_tell_of_a_mask_and_of_padding() -> None:
    flash = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<96, 128>, false, true>"
    padded = attention(flash, "aten::_flash_attention_forward", within=("aten::pad",))
    found = only(attention_backend.RULE, padded.analysis())
    assert "a head dim that is no multiple of 8" in found.summary
    assert found.est_saving_ns > 0
    causal = ("aten::where", "aten::tril")
    made = attention(CUDNN, "aten::_cudnn_attention_forward", within=causal)
    assert only(attention_backend.RULE, made.analysis()).est_saving_ns > 0


@pytest.mark.parametrize("within", [("aten::where",), ("aten::expand",)])
def test_a_mask_of_unknown_kind_has_a_range_from_no_mask_to_a_causal_one(
    within: tuple[str, ...],
) -> None:
    made = attention(CUDNN, "aten::_cudnn_attention_forward", within=within)
    found = only(attention_backend.RULE, made.analysis())
    least, most = (each.value for each in found.evidence if "saved at" in each.name)
    assert 0 < least < found.est_saving_ns < most < 900 * US
    assert found.est_saving_ns == pytest.approx((least + most) / 2, abs=1)
    assert "is_causal=True where the mask is causal" in found.remedy


def test_keys_that_are_repeated_are_no_mask_and_a_learned_bias_has_no_estimate() -> None:
    repeated = ("aten::expand", "aten::repeat_interleave")
    made = attention(CUDNN, "aten::_cudnn_attention_forward", within=repeated)
    assert is_silent(attention_backend.RULE, made.analysis())
    bias = attention(EFFICIENT_BF16, "aten::_efficient_attention_forward", within=("aten::expand",))
    assert only(attention_backend.RULE, bias.analysis()).saving_per is SavingPer.UNKNOWN


def test_heads_that_are_wider_than_fast_kernels_take_are_named_and_judged_by_the_widest() -> None:
    wide = "fmha_cutlassF_bf16_aligned_32x128_gmem_sm80(PyTorchMemEffAttention)"
    op = "aten::_efficient_attention_forward"
    query = (BF16, (16, 2, 1024, 384))
    by_shape = only(
        attention_backend.RULE, attention(wide, op, query, query, query, ("", ())).analysis()
    )
    assert by_shape.summary.endswith("heads wider than 256")
    by_kernel = only(attention_backend.RULE, attention(wide, op).analysis())
    assert by_kernel.summary.endswith("heads wider than 256, or a setting")
    assert "heads of 64 or 128" in by_kernel.remedy
    assert "rows" not in {each.name for each in by_kernel.evidence}


def test_a_backend_that_torch_would_not_choose_is_a_setting() -> None:
    query = (BF16, (16, 12, 1024, 64))
    operands = (query, query, query, ("", ()))
    slow = attention(EFFICIENT_BF16, "aten::_efficient_attention_forward", *operands)
    found = only(attention_backend.RULE, slow.analysis())
    assert "enable_*_sdp" in found.remedy
    best = attention(CUDNN, "aten::_cudnn_attention_forward", *operands)
    assert is_silent(attention_backend.RULE, best.analysis())


def test_casts_of_parameters_are_a_flaw_in_inference_alone() -> None:
    graphs, infer = (
        profiler_ext.load(FIXTURES / "worked" / f"{name}.session.pt.trace.json.gz").analysis
        for name in ("gpt_graphs", "infer_default")
    )
    assert is_silent(dtype_conversion.RULE, graphs)
    assert judged(dtype_conversion.RULE, infer).ranked
