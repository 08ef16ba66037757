"""The unit of a kernel is told by its name, or not at all."""

from __future__ import annotations

import pytest

from profiler_ext.rooflines.compute_units import unit_of_kernel

KERNELS = {
    "bf16_tensor": (
        "nvjet_tst_64x8_64x16_1x4_h_bz_TNT",
        "nvjet_sm90_tst_128x128_64x6_2x1_v_bz_bias_TNT",
        "nvjet_sm100_tst_256x128_64x5_2x2_2cta_h_bz_tnt",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_"
        "segment_k_off_kernel__5x_cublas",
        "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x3>",
        "cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_bf16_bf16_128x128x64_1x2x1_0_tnn",
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, "
        "4, false, false, cutlass::bfloat16_t, pytorch_flash::Flash_kernel_traits<64, 128, 128, 4, "
        "cutlass::bfloat16_t> >, false, true, false>(pytorch_flash::Flash_fwd_params)",
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<>)",
    ),
    "fp16_tensor": (
        "nvjet_hsh_128x64_64x8_2x1_v_bz_NTT",
        "volta_h884gemm_64x64_ldg8_nn",
        "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn",
        "turing_fp16_s1688gemm_fp16_256x128_ldg8_f2f_tn",
        "ampere_h16816gemm_128x64_ldg8_stages_64x3_nn",
        "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize256x32x32_stage4_"
        "warpsize4x1x1_g1_tensor16x8x16_t1r3s3_execute_kernel__5x_cudnn",
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_f16_s16816fprop_optimized_f16_256x64>",
        "void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<64, 64, 256, 4, false, false, "
        "cutlass::half_t> >(Flash_fwd_params)",
    ),
    "tf32_tensor": (
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x64_32x6_nt_align4>(Params)",
        "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize32x32x64_stage3_warpsize2x2x1_"
        "tensor16x8x8_aligna4_alignc4_execute_kernel__5x_cublas",
        "sm90_xmma_dgrad_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize256x32x32_"
        "warpgroupsize1x1x1_g1_execute_segment_k_off_kernel__5x_cudnn",
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_128x128>",
        "cutlass3x_sm90_tensorop_s64x128x8tf32gemm_f32_f32_f32_f32_f32_128x128x32_1x2x1_0_tnn",
        "_ZN17cutlass__5x_cudnn6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS_10tfloat32_tENS_",
    ),
    "fp32": (
        "ampere_sgemm_128x64_tn",
        "volta_sgemm_128x64_nn",
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nt_align1>(Params)",
        "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_"
        "alignc4_execute_kernel__5x_cublas",
        "cutlass3x_sm100_simt_sgemm_f32_f32_f32_f32_f32_128x64x16_1x1x1_3_tnn_align1_bias_f32_relu",
        "void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, 128>",
        "void gemmSN_NN_kernel<float, 128, 2, 4, 8, 4, 4, false>(cublasGemmSmallNParams)",
        "void sgemm_largek_lds64<true, false, 5, 5, 4, 4, 4, 34>(float*, float const*)",
        "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, true>()",
    ),
    "fp64": (
        "void cutlass::Kernel2<cutlass_80_simt_dgemm_64x64_8x3_nn_align1>",
        "volta_dgemm_64x64_nn",
    ),
    "fp64_tensor": ("void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1>",),
    "fp8_tensor": (
        "nvjet_sm90_qqtst_128x64_128x8_1x2_h_bz_TNT",
        "nvjet_sm90_rqsss_48x64_128x15_4x2_h_bz_algo2_TNN",
        "sm90_xmma_gemm_e4m3e4m3_e4m3f32_f32_tn_n_tilesize64x64x128_warpgroupsize1x1x1_execute",
    ),
    "int8_tensor": ("ampere_i16832gemm_s8_128x64_ldg16_stages_64x4_tn",),
}
SILENT = (
    "void at::native::vectorized_elementwise_kernel<4, ...>",
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop>(Params)",
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, false>()",
    "void cudnn::fusion::convert_dq_to_16bits<true>(void const*)",
    # It says f16 of bf16 too: the operands tell.
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_kernel0_0",
    # Three TF32 products for each of float32: no peak in any table.
    "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>)",
    "nvjet_sm90_sss_64x64_64x13_2x1_v_bz_NNT",
    "nvjet_sm90_tqtst_64x64_64x13_2x1_v_bz_NNT",
    "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_execute_kernel__5x_cublas",
    "void cutlass::Kernel2<cutlass_80_simt_hgemm_64x64_8x3_nn_align1>",
    "void gemv2T_kernel_val<int, int, double, double, double, double, 128>(double, float)",
    "turing_s1688gemm_128x64",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "conv2d_c1_k1_nhwc",
    "",
)


@pytest.mark.parametrize(("unit", "name"), [(u, n) for u, names in KERNELS.items() for n in names])
def test_a_name_tells_the_unit(unit: str, name: str) -> None:
    assert unit_of_kernel(name) == unit


@pytest.mark.parametrize("name", SILENT)
def test_a_name_that_is_not_known_for_certain_tells_none(name: str) -> None:
    assert unit_of_kernel(name) is None
