"""The arithmetic units of devices, and which one a kernel's name shows.

A rule covers names of libraries (cuBLAS, cuDNN, CUTLASS, FlashAttention) that are known for
certain; any other name has no unit.
"""

from __future__ import annotations

import re
from functools import lru_cache

from profiler_ext.records.vocabulary import Term

_SLOW = (
    "where the precision is enough, products in TF32 or bf16 run on the tensor cores, which are "
    "several times as fast"
)
# nvjet_sm90_tst_..., nvjet_sm90_qqtst_...: of five letters the first two are the factors.
_NVJET = re.compile(r"nvjet_(?:sm\d+_)?(?P<letters>[a-z]{5}|[a-z]{3})_\d")
# sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_..., sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_...
_XMMA = re.compile(
    r"_xmma_\w*?gemm\w*?_(?P<types>(?:(?:tf32|bf16|f16|f32|f64|e4m3|e5m2|i8|i32)+_)+)"
)
_XMMA_TYPE = re.compile(r"tf32|bf16|f16|f32|f64|e4m3|e5m2|i8|i32")
_XMMA_TENSOR = re.compile(r"_tensor\d+x\d+x\d+|_warpgroupsize")
_SIMT = re.compile(
    r"simt_(?P<simt>[sd])(?:gemm|fprop|dgrad|wgrad)"
    r"|(?:^|[^a-z])(?:maxwell|volta|turing|ampere)_(?P<older>[sd])gemm_\d"
    r"|(?:^|[\s_])(?P<bare>[sd])gemm_(?:largek|kernel)"
    r"|_convolve_(?P<convolve>[sd])gemm<"
)
# cutlass_80_tensorop_s1688gemm_..., ampere_bf16_s16816gemm_bf16_..., volta_h884gemm_...
_MMA = re.compile(
    r"(?P<before>(?:[a-z0-9]+_)*)(?P<letter>[shdi])(?P<shape>884|1684|1688|8816|16816|16832|161616)"
    r"(?P<fast>tf32|bf16|f16)?(?:gemm|fprop|dgrad|wgrad)(?P<after>\w*)"
)
_MMA_FORMAT = re.compile(r"(?:^|_)(tf32|bf16|fp16|f16|s8|u8|e4m3|e5m2)(?=_|$)")
_CUTLASS_3 = re.compile(
    r"cutlass3x_sm\d+_(?P<cores>tensorop|simt)_[a-z]\d*(?:x\d+x\d+)?(?P<fast>tf32|bf16|f16)?gemm_"
    r"(?P<factor>[a-z0-9]+)_"
)
_SPELLED = re.compile(r"\d*(?P<type>tfloat32|bfloat16|half|float_e4m3|float_e5m2)_t", re.ASCII)
_TENSOR_TEMPLATE = re.compile(r"ImplicitGemm|OpClassTensorOp|MmaTensorOp|MMA_\d+x\d+x\d+_F32")
_FLASH = re.compile(r"\bflash(?:_fwd|_bwd|::\w*[Ff]lash)|_?flash_attn|FlashAttn")
# fmha_cutlassF_f16_aligned_...: of float32 it splits each factor in three, which has no peak.
_FMHA = re.compile(r"fmha_cutlass[FB]_(?P<type>f16|bf16)_")
_VECTOR = re.compile(
    r"\b(?:gemv\w*|gemvx::kernel|gemmSN_\w+|gemmk1_kernel|dot_kernel|splitKreduce_kernel)<"
    r"|\b(?:convolve_common_engine_float\w*|wgrad_alg0_engine\w*|dgrad_engine|"
    r"wgrad2d_grouped_direct_kernel|conv_depthwise\w+)<"
)
_HELPER = re.compile(r"splitKreduce|ReduceSplitK|convert_dq|dot_do_o|nchwToNhwc|nhwcToNchw")


class Unit(Term, page="words.md", title="unit", columns=("launches.unit", "by_kernel.unit")):
    """Which arithmetic unit of a device computed, and in which format; each has its own peak."""

    FP64 = ("fp64", "fp64 without tensor cores", "is computed in float64 by the CUDA cores")
    FP64_TENSOR = ("fp64_tensor", "fp64 on tensor cores", "is float64 on the tensor cores")
    FP32 = ("fp32", "fp32 without tensor cores", "is computed in float32 by the CUDA cores", _SLOW)
    TF32_TENSOR = (
        "tf32_tensor",
        "TF32 on tensor cores",
        "is float32 whose factors are rounded to TF32, on the tensor cores",
    )
    BF16_TENSOR = ("bf16_tensor", "bf16 on tensor cores", "is bfloat16 on the tensor cores")
    FP16_TENSOR = ("fp16_tensor", "fp16 on tensor cores", "is float16 on the tensor cores")
    FP8_TENSOR = ("fp8_tensor", "fp8 on tensor cores", "is of 8-bit floats on the tensor cores")
    FP4_TENSOR = ("fp4_tensor", "fp4 on tensor cores", "is of 4-bit floats on the tensor cores")
    INT8_TENSOR = (
        "int8_tensor",
        "int8 on tensor cores",
        "is of 8-bit integers on the tensor cores",
    )


class UnitEvidence(
    Term, page="words.md", title="unit known by", columns=("launches.unit_evidence",)
):
    """How the unit of a launch is known."""

    KERNEL_NAME = ("kernel_name", "the kernel's name", "names its instructions or its operands")
    CALLED_KERNEL = (
        "called_kernel",
        "another kernel of the call",
        "is one of several kernels of one library call, and another one's name shows the unit",
    )
    OPERANDS = (
        "operands",
        "the operands of the op",
        "is a matrix product, convolution or attention of 16-bit or 8-bit floats, for which "
        "libraries and templates use tensor cores",
    )
    GENERATED = (
        "generated",
        "generated code without products",
        "is a kernel of Inductor's without a matrix product, which computes in float32, or in "
        "float64 where a value is one",
    )


class Bound(Term, page="words.md", title="bound", columns=("launches.bound", "by_kernel.bound")):
    """What limits a launch, by the roofline model."""

    MEMORY = (
        "memory",
        "memory bandwidth",
        "has to move its bytes, which takes longer than its arithmetic",
        "move less: fuse it with its neighbours, keep values in a smaller dtype",
    )
    COMPUTE = (
        "compute",
        "arithmetic",
        "has to do its operations, which takes longer than to move its bytes",
        "a smaller dtype has a higher peak",
    )
    LATENCY = (
        "latency",
        "latency",
        "is short, with so little to move and to compute that a kernel's fixed cost is most of it",
        "fewer kernels that do more each: fusion, a larger batch",
    )
    LAUNCH = (
        "launch",
        "launching",
        "is over before the CPU has enqueued what comes next, so that a faster one would only make "
        "the device idle for longer",
        "make launching cheaper: CUDA graphs, fewer kernels, a larger batch",
    )


_FORMATS = {
    "tf32": Unit.TF32_TENSOR,
    "tfloat32": Unit.TF32_TENSOR,
    "bf16": Unit.BF16_TENSOR,
    "bfloat16": Unit.BF16_TENSOR,
    "f16": Unit.FP16_TENSOR,
    "fp16": Unit.FP16_TENSOR,
    "half": Unit.FP16_TENSOR,
    "e4m3": Unit.FP8_TENSOR,
    "e5m2": Unit.FP8_TENSOR,
    "float_e4m3": Unit.FP8_TENSOR,
    "float_e5m2": Unit.FP8_TENSOR,
    "i8": Unit.INT8_TENSOR,
    "s8": Unit.INT8_TENSOR,
    "u8": Unit.INT8_TENSOR,
    "f64": Unit.FP64_TENSOR,
}
_NVJET_LETTERS = {
    "t": Unit.BF16_TENSOR,
    "h": Unit.FP16_TENSOR,
    "q": Unit.FP8_TENSOR,  # e4m3
    "r": Unit.FP8_TENSOR,  # e5m2
}


@lru_cache(maxsize=1 << 16)
def unit_of_kernel(kernel: str) -> Unit | None:
    """Return the unit of a kernel's products by its name, if known."""
    # What only prepares or finishes the products of another kernel has none.
    if _HELPER.search(kernel):
        return None
    for rule in (_nvjet, _xmma, _simt, _cutlass_3, _mma, _attention, _template, _vector):
        if (unit := rule(kernel)) is not None:
            return unit
    return None


def _nvjet(kernel: str) -> Unit | None:
    match = _NVJET.search(kernel)
    if match is None:
        return None
    letters = match["letters"]
    factors = {_NVJET_LETTERS.get(each) for each in letters[: 2 if len(letters) == 5 else 1]}
    return factors.pop() if len(factors) == 1 else None


def _xmma(kernel: str) -> Unit | None:
    match = _XMMA.search(kernel)
    if match is None:
        return None
    types = set(_XMMA_TYPE.findall(match["types"]))
    if "_ffma_" in kernel:
        return Unit.FP32 if types == {"f32"} else None
    narrow = {_FORMATS[each] for each in types if each in _FORMATS}
    return narrow.pop() if len(narrow) == 1 and _XMMA_TENSOR.search(kernel) else None


def _simt(kernel: str) -> Unit | None:
    match = _SIMT.search(kernel)
    if match is None:
        return None
    letter = next(filter(None, match.groups()))
    return Unit.FP64 if letter == "d" else Unit.FP32


def _cutlass_3(kernel: str) -> Unit | None:
    match = _CUTLASS_3.search(kernel)
    if match is None:
        return None
    if match["cores"] == "simt":
        return Unit.FP32 if match["factor"] == "f32" else None
    return _FORMATS.get(match["fast"] or match["factor"])


def _mma(kernel: str) -> Unit | None:
    match = _MMA.search(kernel)
    if match is None:
        return None
    if match["letter"] == "d":
        return Unit.FP64_TENSOR
    type_name = match["fast"] or next(iter(_MMA_FORMAT.findall(match["after"])), None)
    type_name = type_name or next(iter(_MMA_FORMAT.findall(match["before"].rstrip("_"))), None)
    if type_name is not None:
        return _FORMATS[type_name]
    if match["letter"] == "h":
        return Unit.FP16_TENSOR
    # cuBLAS says s1688gemm, and no more, of float32 factors; Turing's 1688 has float16 factors.
    is_tf32 = match["letter"] == "s" and match["shape"] == "1688" and "turing" not in kernel
    return Unit.TF32_TENSOR if is_tf32 else None


def _attention(kernel: str) -> Unit | None:
    if (match := _FMHA.search(kernel)) is not None:
        return _FORMATS[match["type"]]
    return _spelled(kernel) if _FLASH.search(kernel) else None


def _template(kernel: str) -> Unit | None:
    return _spelled(kernel) if _TENSOR_TEMPLATE.search(kernel) else None


def _spelled(kernel: str) -> Unit | None:
    types = {_FORMATS[each] for each in _SPELLED.findall(kernel)}
    return types.pop() if len(types) == 1 else None


def _vector(kernel: str) -> Unit | None:
    if _VECTOR.search(kernel) is None or "float" not in kernel:
        return None
    return None if re.search(r"\bdouble\b|complex|cuComplex", kernel) else Unit.FP32
