"""The trial of units: what products of each dtype run, and an eager step by its shapes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import torch

from benchmarks.roofline_rows import estimated, scaled


def units(options: argparse.Namespace) -> None:
    """Write which kernels products of each dtype run, what we call their unit, and how fast."""
    from profiler_ext.rooflines.compute_units import unit_of_kernel

    lines = ["| product | kernel | unit | TFLOP/s |", "| --- | --- | --- | --- |"]
    for label, product, flops in _products():
        kernel, took_us = _longest(product)
        rate = flops / took_us / 1e6
        lines.append(
            f"| {label} | `{kernel[:110]}` | {unit_of_kernel(kernel) or '-'} | {rate:.1f} |"
        )
    source = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    kernel, took_us = _longest(lambda: target.copy_(source))
    lines.append(f"| copy of 1 GiB | `{kernel[:60]}` | {2 * 2**30 / took_us / 1e3:.0f} GB/s | |")
    (options.out / "units.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines), flush=True)
    eager(options)


def eager(options: argparse.Namespace) -> None:
    """Write what is told of an eager step by its shapes, and compare with torch's own counter."""
    from torch.utils.flop_counter import FlopCounterMode

    import profiler_ext

    step = _eager_step("cpu" if options.dry else "cuda")
    step()
    with FlopCounterMode(display=False) as counter:
        step()
    schedule = torch.profiler.schedule(wait=0, warmup=2, active=1, repeat=1)
    with profiler_ext.profile(schedule=schedule, record_shapes=True) as recording:
        for _ in range(3):
            step()
            recording.step()
    recording.session.save(options.out / "eager.session")
    rows = list(estimated(recording.session.analysis))
    calls = {row["call"]: row for row in rows if row["flops"] is not None}
    total = sum(row["flops"] for row in calls.values())
    lines = [
        f"operations of products: {total} told by shapes, {counter.get_total_flops()} by torch"
    ]
    lines += ["", "| kernel | unit | by | bound | MB | MFLOP |", "| --- |" + " --- |" * 5]
    for row in rows:
        cells = [f"`{row['name'][:90]}`", row["unit"], row["unit_evidence"], row["bound"]]
        cells += [scaled(row["bytes"], 1e6), scaled(row["flops"], 1e6)]
        lines.append("| " + " | ".join(cells) + " |")
    (options.out / "eager.md").write_text("\n".join(lines) + "\n")
    print(lines[0], flush=True)


def _eager_step(device: str) -> Callable[[], None]:
    """A step in bf16 that is not compiled: convolutions, products, attention, backward."""
    nn, functional = torch.nn, torch.nn.functional
    torch.manual_seed(0)
    layers = (nn.Conv2d(8, 64, 3, padding=1), nn.Conv2d(64, 256, 3, stride=2))
    model = nn.Sequential(layers[0], nn.GELU(), layers[1], nn.Flatten(2)).to(device, torch.bfloat16)
    wide, narrow = (nn.Linear(256, 768), nn.Linear(256, 10))
    heads = nn.ModuleList((wide, narrow)).to(device, torch.bfloat16)
    images = torch.randn(16, 8, 32, 32, device=device, dtype=torch.bfloat16)

    def step() -> None:
        x = model(images).transpose(1, 2)
        qkv = heads[0](x).view(16, -1, 3, 4, 64).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(*qkv)
        y = y.transpose(1, 2).reshape(16, -1, 256)
        y = torch.baddbmm(y, y @ y.transpose(1, 2), y)
        functional.cross_entropy(
            heads[1](y.mean(1)).float(), torch.zeros(16, device=device).long()
        ).backward()

    return step


def _products() -> Iterator[tuple[str, Any, float]]:
    side = 4096

    def square(dtype: torch.dtype) -> torch.Tensor:
        return torch.randn(side, side, device="cuda").to(dtype)

    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        a, b = square(dtype), square(dtype)
        yield f"mm {dtype}", lambda a=a, b=b: a @ b, 2.0 * side**3
    a, b = square(torch.float32), square(torch.float32)
    for precision in ("highest", "high", "medium"):
        torch.set_float32_matmul_precision(precision)
        yield f"mm float32 {precision}", lambda: a @ b, 2.0 * side**3
    for rows in (1, 16):
        x = a[:rows].contiguous()
        yield f"mm float32 medium, {rows} rows", lambda x=x: x @ b, 2.0 * rows * side**2
        y = x.to(torch.bfloat16)
        c = b.to(torch.bfloat16)
        yield f"mm bfloat16, {rows} rows", lambda y=y, c=c: y @ c, 2.0 * rows * side**2
    e, one = square(torch.float8_e4m3fn), torch.ones((), device="cuda")
    f = square(torch.float8_e4m3fn).t()
    product = lambda: torch._scaled_mm(e, f, one, one, out_dtype=torch.bfloat16)  # noqa: E731
    yield "scaled mm float8", product, 2.0 * side**3
    g = torch.randint(-9, 9, (side, side), device="cuda", dtype=torch.int8)
    yield "int mm int8", lambda: torch._int_mm(g, g.t()), 2.0 * side**3
    yield from _attentions()


def _attentions() -> Iterator[tuple[str, Any, float]]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        q = torch.randn(8, 16, 2048, 64, device="cuda", dtype=dtype)
        backends = [SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION]
        backends = [SDPBackend.EFFICIENT_ATTENTION, *(backends if q.itemsize == 2 else [])]
        for backend in backends:

            def product(q: torch.Tensor = q, backend: SDPBackend = backend) -> None:
                with sdpa_kernel(backend):
                    torch.nn.functional.scaled_dot_product_attention(q, q, q)

            yield f"{backend.name.lower()} {dtype}", product, 4.0 * 8 * 16 * 2048**2 * 64


def _longest(run: Any) -> tuple[str, float]:
    """Return the kernel that took most time in the last of some runs, and its microseconds."""
    for _ in range(5):
        run()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as recorded:
        for _ in range(5):
            run()
        torch.cuda.synchronize()
    kernels = [e for e in recorded.events() if e.device_type.name == "CUDA"]
    main = max(kernels, key=lambda event: event.time_range.elapsed_us())
    same = [e.time_range.elapsed_us() for e in kernels if e.name == main.name]
    return main.name, min(same)
