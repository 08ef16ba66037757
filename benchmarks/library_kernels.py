"""Measures the table of library kernels: products by alignment, attention by backend and mask.

    python -m benchmarks.library_kernels profiler_ext/findings/data/library_kernels.json

Each product of a linear layer (its result, the gradient of its input, that of its weight) is timed
at common sizes and at sizes a few elements above them, so that rows lose their alignment. Each
backend of ``scaled_dot_product_attention`` is timed with and without masks, forward and backward,
and so is the same in ops of its own, as models write it out: in the dtype of its operands
(``written``), or with the softmax in float32, as autocast has it (``autocast``).
A call takes the time between two events on the device around several of them, which wait behind a
longer kernel until all are enqueued. What a backend refuses has no row.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, Final

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

# Rows (tokens), inputs and outputs of linear layers
LAYERS: Final = (
    *((16384, 768, 3072), (16384, 3072, 768), (16384, 768, 768), (8192, 768, 50304)),
    *((4096, 2048, 32000), (16384, 1024, 2752), (8192, 4096, 4096), (2048, 1024, 1024)),
    *((4096, 2048, 8192), (65536, 256, 512)),
)
FEW_LAYERS: Final = ((16384, 768, 3072), (16384, 3072, 768), (4096, 2048, 8192))
PRODUCT_COLUMNS: Final = ("dtype", "product", "rows", "inputs", "outputs", "ns")
# Batch, heads, heads of keys and values, length, head dim
SHAPES: Final = (
    *((16, 12, 12, 1024, 64), (32, 12, 12, 512, 64), (64, 12, 12, 197, 64), (4, 16, 16, 2048, 128)),
    *((4, 32, 8, 2048, 128), (2, 8, 8, 4096, 64)),
    *((8, 8, 8, 1024, dim) for dim in (32, 64, 72, 77, 80, 96, 100, 128, 192, 256)),
)
# Windows of images and volumes
WINDOWS: Final = ((2048, 4, 4, 49, 32), (2048, 4, 4, 64, 32), (512, 6, 6, 216, 32))
ATTENTION_COLUMNS: Final = (
    *("dtype", "backend", "is_default", "mask", "batch", "heads", "kv_heads", "length", "head_dim"),
    *("forward_ns", "backward_ns"),
)
BACKENDS: Final = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
WRITTEN: Final = ("written", "autocast")
MASKS: Final = ("none", "causal", "bool", "float", "padding", "bias", "dropout")
_DTYPES: Final = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "tf32": torch.float32,
}
_ALIGNMENTS: Final = (1, 2, 4, 8)
_SLEEP_CYCLES: Final = 4_000_000
_MIN_CALLS, _MAX_CALLS = 3, 20
_ENOUGH_NS: Final = 4_000_000


def call_ns(call: Callable[[], object]) -> int:
    """Return what a call takes on the device: the median of three times of several calls."""
    call()
    once = _ns_of(call, 1)
    calls = max(_MIN_CALLS, min(_MAX_CALLS, _ENOUGH_NS // max(once, 1)))
    return sorted(_ns_of(call, calls) for _ in range(3))[1]


def _ns_of(call: Callable[[], object], calls: int) -> int:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(_SLEEP_CYCLES)
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return int(1e6 * begin.elapsed_time(end) / calls)


def _sizes(layers: tuple[tuple[int, int, int], ...]) -> Iterator[tuple[int, int, int]]:
    """Yield the sizes of each layer: as they are, and with fewer aligned inputs and outputs."""
    for rows, inputs, outputs in layers:
        yield rows, inputs, outputs
        yield rows + 1, inputs, outputs
        for more in _ALIGNMENTS:
            yield rows, inputs + more, outputs
            yield rows, inputs, outputs + more
            yield rows, inputs + more, outputs + more


def products() -> Iterator[list[Any]]:
    """Yield a row for each product of a linear layer."""
    for name, dtype in _DTYPES.items():
        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        layers = LAYERS if name == "bfloat16" else FEW_LAYERS
        for rows, inputs, outputs in _sizes(layers):
            x = torch.randn(rows, inputs, device="cuda", dtype=dtype)
            weight = torch.randn(outputs, inputs, device="cuda", dtype=dtype)
            gradient = torch.randn(rows, outputs, device="cuda", dtype=dtype)
            calls = {
                "output": lambda x=x, weight=weight: x @ weight.t(),
                "input_gradient": lambda gradient=gradient, weight=weight: gradient @ weight,
                "weight_gradient": lambda gradient=gradient, x=x: gradient.t() @ x,
            }
            for kind, call in calls.items():
                yield [name, kind, rows, inputs, outputs, call_ns(call)]


def attentions() -> Iterator[list[Any]]:
    """Yield a row for each call of attention that a backend takes."""
    for name, shape, mask in product(("bfloat16", "float32"), (*SHAPES, *WINDOWS), MASKS):
        is_few = shape not in (*SHAPES[:3], *WINDOWS) and mask in ("padding", "bias", "dropout")
        if is_few or (name == "float32" and shape not in (*SHAPES[:3], *SHAPES[-9:-7])):
            continue
        is_written = name == "bfloat16" and mask not in ("causal", "padding")
        for backend in (*BACKENDS, *(WRITTEN if is_written else ())):
            took = attention_ns(_DTYPES[name], backend, mask, shape)
            if took is not None:
                is_default, forward_ns, backward_ns = took
                yield [name, backend, is_default, mask, *shape, forward_ns, backward_ns]


def attention_ns(
    dtype: torch.dtype, backend: str, mask: str, shape: tuple[int, ...]
) -> tuple[bool, int, int] | None:
    """Return if torch itself takes a backend, its time forward and backward; none if refused."""
    batch, heads, kv_heads, length, head_dim = shape
    # As models make them: a view of a projection, the heads before the rows
    q, k, v = (
        torch.randn(batch, length, count, head_dim, device="cuda", dtype=dtype)
        .transpose(1, 2)
        .requires_grad_()
        for count in (heads, kv_heads, kv_heads)
    )
    given = _mask(mask, shape, dtype)
    words: dict[str, Any] = {
        "attn_mask": given,
        "is_causal": mask == "causal",
        "dropout_p": 0.1 if mask == "dropout" else 0.0,
        "enable_gqa": kv_heads != heads,
    }
    chosen = int(torch._fused_sdp_choice(q, k, v, **words))
    is_default = backend in BACKENDS and chosen == int(BACKENDS[backend].value)

    def forward() -> torch.Tensor:
        if backend in WRITTEN:
            return _written((q, k, v), given, words["dropout_p"], is_cast=backend == "autocast")
        with sdpa_kernel(BACKENDS[backend]):
            return functional.scaled_dot_product_attention(q, k, v, **words)

    wanted = [each for each in (q, k, v, given) if each is not None and each.requires_grad]
    try:
        result = forward()
        gradient = torch.randn_like(result)
        backward_ns = call_ns(
            lambda: torch.autograd.grad(result, wanted, gradient, retain_graph=True)
        )
        return is_default, call_ns(forward), backward_ns
    except RuntimeError:  # the backend takes no such call, or the memory does not hold it
        return None


def _written(
    operands: tuple[torch.Tensor, ...],
    mask: torch.Tensor | None,
    dropout: float,
    *,
    is_cast: bool,
) -> torch.Tensor:
    """Return what attention returns, in ops of its own."""
    q, k, v = operands
    k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], 1) for each in (k, v))
    with torch.autocast("cuda", q.dtype, enabled=is_cast):
        scores = q * q.shape[-1] ** -0.5 @ k.mT
        if mask is not None and mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, float("-inf"))
        elif mask is not None:
            scores = scores + mask
        return functional.dropout(scores.softmax(-1), dropout).to(v.dtype) @ v


def _mask(kind: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor | None:
    batch, heads, _, length, _ = shape
    causal = torch.ones(length, length, dtype=torch.bool, device="cuda").tril()
    if kind == "bool":
        return causal
    if kind == "float":
        return torch.zeros(length, length, device="cuda", dtype=dtype).masked_fill(
            ~causal, float("-inf")
        )
    if kind == "padding":
        return torch.ones(batch, 1, 1, length, dtype=torch.bool, device="cuda").expand(
            batch, 1, length, length
        )
    if kind == "bias":
        bias = torch.randn(1, heads, length, length, device="cuda", dtype=dtype)
        return bias.requires_grad_()
    return None


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    file = parser.parse_args().file
    table = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "command": "python -m benchmarks.library_kernels",
        "products": {"columns": PRODUCT_COLUMNS, "rows": list(products())},
        "attention": {"columns": ATTENTION_COLUMNS, "rows": list(attentions())},
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    for name in ("products", "attention"):
        print(f"{name}: {len(table[name]['rows'])} rows", file=sys.stderr)
    file.write_text(_text(table))


def _text(table: dict[str, Any]) -> str:
    """Return the table as JSON with one row a line, so that a new measurement shows as a diff."""
    rows = {name: table.pop(name) for name in ("products", "attention")}
    text = json.dumps(table, indent=1).removesuffix("\n}")
    for name, each in rows.items():
        lines = ",\n  ".join(json.dumps(row) for row in each["rows"])
        text += f',\n "{name}": {{"columns": {json.dumps(each["columns"])}, "rows": [\n  {lines}]}}'
    return text + "\n}\n"


if __name__ == "__main__":
    main()
