"""Generated kernels for tests, and their compilation to PTX without a GPU."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from typing import Any

import pytest

_HEAD = """
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties

@triton_heuristics.{kind}(
    size_hints={sizes},
    filename=__file__,
    triton_meta={{'signature': {signature}, 'device': DeviceProperties(type='cuda', index=0, """
_HEAD += """multi_processor_count=132, cc=90, warp_size=32), 'constants': {{}}, 'configs': """
_HEAD += """[{divisible}]}},
    inductor_meta={{'grid_type': 'Grid1D', 'kernel_name': 'triton_kernel'}},
)
@triton.jit
def triton_kernel({arguments}):
"""
_POINTWISE = ("xoffset = tl.program_id(0) * XBLOCK", "xindex = xoffset + tl.arange(0, XBLOCK)[:]")


def generated(*lines: str, pointers: Mapping[str, str] | None = None) -> str:
    """Return a pointwise kernel of these lines over 131,072 elements."""
    of = pointers or {"in_ptr0": "*fp32", "in_ptr1": "*fp32", "out_ptr0": "*fp32"}
    body = ("xnumel = 131072", *_POINTWISE, "xmask = xindex < xnumel", "x0 = xindex", *lines)
    return _written("pointwise", {"x": 131072}, {**of, "xnumel": "i32"}, ("XBLOCK",), body)


def _written(
    kind: str,
    sizes: Mapping[str, int],
    signature: Mapping[str, str],
    blocks: tuple[str, ...],
    lines: tuple[str, ...],
) -> str:
    arguments = [*signature, *(f"{each} : tl.constexpr" for each in blocks)]
    kinds = {**signature, **dict.fromkeys(blocks, "constexpr")}
    head = _HEAD.format(
        kind=kind,
        sizes=dict(sizes),
        signature=kinds,
        divisible={(at,): [["tt.divisibility", 16]] for at in range(len(signature))},
        arguments=", ".join(arguments),
    )
    return head + "".join(f"    {line}\n" for line in lines)


POINTWISE = generated(
    "tmp0 = tl.load(in_ptr0 + (x0), xmask)",
    "tmp1 = tl.load(in_ptr1 + (x0), xmask)",
    "tmp2 = tmp0 * tmp1",
    "tmp3 = libdevice.exp(tmp2)",
    "tmp4 = tl_math.abs(tmp0)",
    "tmp5 = tmp3 + tmp4",
    "tl.store(out_ptr0 + (x0), tmp5, xmask)",
)
GATHER = generated(
    "x1 = xindex // 64",
    "tmp0 = tl.load(in_ptr0 + (x1), xmask)",
    "tmp1 = tl.full([XBLOCK], 512, tl.int32)",
    "tmp2 = tmp0 + tmp1",
    "tmp3 = tmp0 < 0",
    "tmp4 = tl.where(tmp3, tmp2, tmp0)",
    "tmp5 = tl.load(in_ptr1 + (x0 + 64*tmp4), xmask)",
    "tl.store(out_ptr0 + (x0), tmp5, xmask)",
    pointers={"in_ptr0": "*i64", "in_ptr1": "*fp32", "out_ptr0": "*fp32"},
)
_ROWS = (
    "xnumel = 64",
    "r0_numel = 8192",
    "xoffset = tl.program_id(0) * XBLOCK",
    "xindex = xoffset + tl.arange(0, XBLOCK)[:, None]",
    "xmask = xindex < xnumel",
    "r0_base = tl.arange(0, R0_BLOCK)[None, :]",
    "x0 = xindex",
)
_LOOP = (
    "for r0_offset in tl.range(0, r0_numel, R0_BLOCK):",
    "    r0_index = r0_offset + r0_base",
    "    r0_mask = r0_index < r0_numel",
    "    roffset = r0_offset",
    "    r0_1 = r0_index",
)


def _of_rows(*lines: str) -> str:
    signature = {"in_ptr0": "*fp32", "out_ptr0": "*fp32", "xnumel": "i32", "r0_numel": "i32"}
    sizes = {"x": 64, "r0_": 8192}
    return _written("reduction", sizes, signature, ("XBLOCK", "R0_BLOCK"), (*_ROWS, *lines))


REDUCTION = _of_rows(
    "_tmp3 = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)",
    *_LOOP,
    "    tmp0 = tl.load(in_ptr0 + (r0_1 + 8192*x0), r0_mask & xmask, other=0.0)",
    "    tmp1 = libdevice.exp(tmp0)",
    "    tmp2 = tl.broadcast_to(tmp1, [XBLOCK, R0_BLOCK])",
    "    tmp4 = _tmp3 + tmp2",
    "    _tmp3 = tl.where(r0_mask & xmask, tmp4, _tmp3)",
    "tmp3 = tl.sum(_tmp3, 1)[:, None]",
    "tl.store(out_ptr0 + (x0), tmp3, xmask)",
)
WELFORD = _of_rows(
    "tmp2_mean = tl.zeros([XBLOCK, R0_BLOCK], tl.float32)",
    "tmp2_m2 = tl.zeros([XBLOCK, R0_BLOCK], tl.float32)",
    "tmp2_weight = tl.zeros([XBLOCK, R0_BLOCK], tl.float32)",
    *_LOOP,
    "    tmp0 = tl.load(in_ptr0 + (r0_1 + 8192*x0), r0_mask & xmask, other=0.0)",
    "    tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])",
    "    tmp2_mean_next, tmp2_m2_next, tmp2_weight_next = triton_helpers.welford_reduce(",
    "        tmp1, tmp2_mean, tmp2_m2, tmp2_weight, roffset == 0",
    "    )",
    "    tmp2_mean = tl.where(r0_mask & xmask, tmp2_mean_next, tmp2_mean)",
    "    tmp2_m2 = tl.where(r0_mask & xmask, tmp2_m2_next, tmp2_m2)",
    "    tmp2_weight = tl.where(r0_mask & xmask, tmp2_weight_next, tmp2_weight)",
    "tmp3, tmp4, tmp5 = triton_helpers.welford(tmp2_mean, tmp2_m2, tmp2_weight, 1)",
    "tmp2 = tmp3[:, None]",
    "tmp6 = tmp4[:, None]",
    "tmp7 = tmp2 + tmp6",
    "tl.store(out_ptr0 + (x0), tmp7, xmask)",
)


def compiled(text: str, config: Mapping[str, Any]) -> str:
    """Return the PTX of a kernel for an H100, by Triton's compiler alone."""
    pytest.importorskip("triton", reason="kernels are compiled by Triton")
    import triton
    from torch._inductor.codecache import PyCodeCache
    from triton.backends.compiler import GPUTarget

    target = GPUTarget("cuda", 90, 32)
    driver = types.SimpleNamespace(get_current_target=lambda: target, get_current_device=lambda: 0)
    drivers: Any = triton.runtime.driver
    before, drivers._active = drivers._active, driver
    try:
        name = re.findall(r"def (triton_kernel\w*)\(", text)[-1]
        kernel = getattr(PyCodeCache.load(text), name)
        function, meta = kernel.fn, kernel.triton_meta
        constants = {
            (function.arg_names.index(each),): value
            for each, value in config.items()
            if each in function.arg_names
        }
        source = triton.compiler.ASTSource(
            function, dict(meta["signature"]), constants, meta["configs"][0]
        )
        warps = {each: config[each] for each in ("num_warps", "num_stages")}
        made = triton.compile(source, target=target, options=warps)
    finally:
        drivers._active = before
    return str(made.asm["ptx"])
