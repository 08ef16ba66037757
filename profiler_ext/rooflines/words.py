"""Owns the words of rooflines: which arithmetic a kernel used, how we know, and what bounds it."""

from __future__ import annotations

from profiler_ext.records import Term

_SLOW = (
    "where the precision is enough, products in TF32 or bf16 run on the tensor cores, which are "
    "several times as fast"
)


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
    """How the unit of a launch is known; where nothing tells it there is none, and no peak."""

    KERNEL_NAME = ("kernel_name", "the kernel's name", "names its instructions or its operands")
    CALLED_KERNEL = (
        "called_kernel",
        "another kernel of the call",
        "is one of several kernels of one library call, and another one's name tells the unit",
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
    """What keeps a launch from being shorter, by the roofline model."""

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
