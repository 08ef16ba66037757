"""Bytes and operations as we estimate them, beside what ncu counts in the same kernels.

Each of five models is compiled and profiled by us; then the same program runs under ncu, which
counts in the kernels that took most time. The two runs launch the same kernels in the same order,
so a kernel is known by its name and by how many of that name came before it.

    python benchmarks/rooflines.py --out DIR [--models gpt llama t5 resnet vit] [--kernels 12]

It needs a GPU whose counters ncu may read. `--dry` tries everything but ncu, on the CPU too.
DIR/table.md has one row for each kernel, DIR/units.md what products of each dtype run.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from roofline_models import MODELS, Step

ROOT = Path(__file__).parents[1]
WARM_UP = 3
DRAM, L2, TIME = "dram__bytes.sum", "lts__t_bytes.sum", "gpu__time_duration.sum"
# Operations of one instruction of a thread; of each name the machine's ncu is asked for it.
SCALAR = {"ffma": 2, "fadd": 1, "fmul": 1, "dfma": 2, "dadd": 1, "dmul": 1}
TENSOR = re.compile(r"sm__ops_path_tensor_src_(?:bf16|fp16|tf32|fp8|fp64|int8)(?:_dst_\w+)?")
Row = dict[str, Any]


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--kernels", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=280)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--part", choices=("compare", "compile", "profile", "measure", "units"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.part == "profile":
        profile(options.models[0], options)
    elif options.part == "compile":
        compiled(options.models[0], options)
    elif options.part == "measure":
        measure(options.models[0], options)
    elif options.part == "units":
        units(options)
    else:
        compare(options)


def device_of(options: argparse.Namespace) -> str:
    """Return where the models run."""
    return "cpu" if options.dry else "cuda"


def step_of(name: str, options: argparse.Namespace) -> Step:
    """Return a training step of a model, the same in each process."""
    torch.manual_seed(0)
    return MODELS[name](device_of(options), options.dry)


def compiled(name: str, options: argparse.Namespace) -> None:
    """Run a step under capture, so that the cache has its graphs with our records."""
    import profiler_ext

    profiler_ext.enable()
    step_of(name, options)()


def profile(name: str, options: argparse.Namespace) -> None:
    """Profile a step of a model; write what we estimate of each kernel, in order."""
    import profiler_ext

    profiler_ext.enable()
    step = step_of(name, options)
    schedule = torch.profiler.schedule(wait=0, warmup=WARM_UP, active=1, repeat=1)
    with profiler_ext.profile(schedule=schedule) as recording:
        for _ in range(WARM_UP + 1):
            step()
            recording.step()
    session = recording.session
    session.save(options.out / f"{name}.session")
    rows = list(estimated(session.analysis))
    (options.out / f"{name}.estimates.json").write_text(json.dumps(rows))
    print(f"{name}: {len(rows)} kernels", flush=True)


def estimated(analysis: Any) -> Iterator[Row]:
    """Yield what we say of each kernel, in the order in which they ran."""
    from profiler_ext.rooflines.estimates import estimate
    from profiler_ext.rooflines.rooflines import rooflines

    launches, whole, found = analysis.launches, estimate(analysis), rooflines(analysis)
    for row in range(len(launches)):
        if launches.kind[row] in ("memcpy", "memset") or launches.name[row].startswith("Mem"):
            continue
        yield {
            "name": launches.name[row],
            "kernel": launches.kernel[row],
            "kind": launches.kind[row],
            "call": int(whole.calls.number[row]),
            "duration_ns": int(launches.duration_ns[row]),
            "bytes": _plain(whole.bytes[row]),  # of its whole call, as are the operations
            "flops": _plain(whole.flops[row]),
            "unit": found.unit[row],
            "unit_evidence": found.unit_evidence[row],
            "bound": found.bound[row],
            "roofline_ns": _plain(found.roofline_ns[row]),
            "could_save_ns": _plain(found.could_save_ns[row]),
        }


def _plain(value: Any) -> int | None:
    import numpy as np

    return None if value is np.ma.masked else int(value)


def measure(name: str, options: argparse.Namespace) -> None:
    """Run the same steps, the last one between the marks that ncu waits for."""
    step = step_of(name, options)
    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    step()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def compare(options: argparse.Namespace) -> None:
    """Profile and measure each model, while there is time, and write the tables."""
    until = time.monotonic() + options.seconds
    metrics = [] if options.dry else known_metrics()
    if not options.dry:
        run(["--part", "units"], options, 60)
        compile_all(options, options.seconds / 3)
    for at, name in enumerate(options.models):
        left = (until - time.monotonic()) / (len(options.models) - at)
        if left < 15:
            print(f"{name}: no time left")
            continue
        began = time.monotonic()
        if run(["--part", "profile", "--models", name], options, left + 30) and not options.dry:
            wanted = most_expensive(estimates_of(name, options), options.kernels)
            budget = max(20.0, left + 30 - (time.monotonic() - began))
            counted(name, wanted, metrics, options, budget)
        write_table(all_rows(options), options)
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)


def estimates_of(name: str, options: argparse.Namespace) -> list[Row]:
    """Return what we say of each kernel of a model; nothing where it was not profiled."""
    path = options.out / f"{name}.estimates.json"
    return json.loads(path.read_text()) if path.exists() else []


def all_rows(options: argparse.Namespace) -> list[Row]:
    """Return the rows of all models measured so far: ncu may write its log a moment later."""
    rows: list[Row] = []
    for name in options.models:
        kernels = estimates_of(name, options)
        rows += joined(name, kernels, most_expensive(kernels, options.kernels), options)
    return rows


def compile_all(options: argparse.Namespace, seconds: float) -> None:
    """Fill the compiler's cache with all models, side by side."""
    until = time.monotonic() + seconds
    own = [sys.executable, __file__, "--out", str(options.out), "--part", "compile", "--models"]
    started = [subprocess.Popen([*own, name], env=environment()) for name in options.models]
    for process in started:
        try:
            process.wait(max(1.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
    print(f"compiled after {seconds - until + time.monotonic():.0f} s", flush=True)


def environment() -> dict[str, str]:
    """Return the environment of a part: our sources, one cache for all."""
    cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "/tmp/rooflines_cache")
    return {**os.environ, "PYTHONPATH": str(ROOT), "TORCHINDUCTOR_CACHE_DIR": cache}


def run(arguments: list[str], options: argparse.Namespace, seconds: float) -> bool:
    """Run a part in a process of its own, and say whether it came to its end."""
    command = [sys.executable, __file__, "--out", str(options.out), *arguments]
    return ran(command + ["--dry"] * options.dry, seconds)


def ran(command: list[str], seconds: float) -> bool:
    """Run a command with our sources, and say whether it came to its end."""
    try:
        done = subprocess.run(command, env=environment(), timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        print(f"more than {seconds:.0f} s: {' '.join(command[-6:])}", flush=True)
        return False
    return done.returncode == 0


def ncu() -> str:
    """Return where ncu is."""
    found = shutil.which("ncu") or next(
        (str(p) for p in sorted(Path("/opt/nvidia").glob("nsight-compute/*/ncu"))), None
    )
    return found or "/usr/local/cuda/bin/ncu"


def known_metrics() -> list[str]:
    """Return which of the counters that we ask for the machine's ncu knows."""
    told = subprocess.run(
        [ncu(), "--query-metrics"], capture_output=True, text=True, check=False, timeout=60
    ).stdout
    every = set(re.findall(r"^(\w+__\w+)", told, re.MULTILINE))
    asked = [metric for metric in (DRAM, L2, TIME) if metric.split(".")[0] in every]
    for op in SCALAR:
        names = (f"{p}__sass_thread_inst_executed_op_{op}_pred_on" for p in ("sm", "smsp"))
        asked += [f"{name}.sum" for name in names if name in every][:1]
    tensor = {name for name in every if TENSOR.fullmatch(name)}
    asked += [f"{name}.sum" for name in sorted(n for n in tensor if "sparsity" not in n)]
    print(f"{len(every)} metrics, asked for: {' '.join(asked)}", flush=True)
    return asked


def counted(
    name: str, wanted: set[str], metrics: list[str], options: argparse.Namespace, seconds: float
) -> None:
    """Let ncu count in all kernels of a step that are called as the wanted ones are."""
    names = "|".join(sorted(map(re.escape, wanted)))
    log = options.out / f"{name}.ncu.csv"
    command = [ncu(), "--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log)]
    command += ["--print-kernel-base", "function", "--kernel-name-base", "function"]
    command += ["-k", f"regex:^({names})$", "--metrics", ",".join(metrics)]
    command += ["--profile-from-start", "off", "--clock-control", "none", "-f"]
    command += ["--target-processes", "application-only", "--replay-mode", "kernel"]
    own = [sys.executable, __file__, "--out", str(options.out), "--part", "measure"]
    ran([*command, *own, "--models", name], seconds)


def most_expensive(kernels: list[Row], count: int) -> set[str]:
    """Return the functions of the calls that took most time, of those that have an estimate."""
    took: Counter[str] = Counter()
    functions: dict[str, set[str]] = defaultdict(set)
    for call in by_call(kernels).values():
        if call[0]["bytes"] is None:
            continue
        main = max(call, key=lambda kernel: kernel["duration_ns"])
        took[main["name"]] += sum(kernel["duration_ns"] for kernel in call)
        functions[main["name"]] |= {function_of(kernel["name"]) for kernel in call}
    return {f for name, _ in took.most_common(count) for f in functions[name]}


def by_call(kernels: list[Row]) -> dict[int, list[Row]]:
    """Return the kernels of each call."""
    calls: dict[int, list[Row]] = defaultdict(list)
    for kernel in kernels:
        calls[kernel["call"]].append(kernel)
    return calls


def function_of(name: str) -> str:
    """Return a kernel's function without its namespace, template and parameters."""
    bare = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    return re.split(r"[<(]", bare, maxsplit=1)[0].split("::")[-1].strip()


def joined(
    name: str, kernels: list[Row], wanted: set[str], options: argparse.Namespace
) -> list[Row]:
    """Return one row for each different kernel: our estimate of its call, and what was counted."""
    measured = counts(options.out / f"{name}.ncu.csv")
    expected = Counter(function_of(kernel["name"]) for kernel in kernels)
    seen: Counter[str] = Counter()
    for kernel in kernels:
        function = function_of(kernel["name"])
        # Where its time was over, ncu has counted in the first of them.
        if seen[function] < len(measured[function]) <= expected[function]:
            kernel["counted"] = measured[function][seen[function]]
        seen[function] += 1
    for function, found in measured.items():
        if len(found) > expected[function]:
            print(f"{name}: {function} ran {len(found)} times under ncu, {expected[function]} here")
    return list(_rows(name, kernels, wanted, options))


def _rows(
    model: str, kernels: list[Row], wanted: set[str], options: argparse.Namespace
) -> Iterator[Row]:
    groups: dict[tuple[str, int, int], list[list[Row]]] = defaultdict(list)
    for call in by_call(kernels).values():
        main = max(call, key=lambda kernel: kernel["duration_ns"])
        if main["bytes"] is not None and function_of(main["name"]) in wanted:
            groups[main["name"], main["bytes"], main["flops"] or 0].append(call)
    for (name, moved, flops), calls in groups.items():
        if not options.dry and not any(_is_counted(call) for call in calls):
            continue
        first = max(calls[0], key=lambda kernel: kernel["duration_ns"])
        total = [sum(kernel["duration_ns"] for kernel in call) for call in calls]
        row = {"model": model, "name": name, "calls": len(calls), "bytes": moved, "flops": flops}
        row |= {key: first[key] for key in ("kind", "unit", "unit_evidence", "bound")}
        row |= {"duration_ns": sum(total) / len(calls)}
        row |= {"roofline_ns": _sum(calls[0], "roofline_ns")}
        for key in ("dram", "l2", "scalar", "tensor", "tensor_by", "ncu_ns"):
            row[key] = _mean_count(calls, key)
        yield row


def _sum(call: list[Row], key: str) -> int | None:
    known = [kernel[key] for kernel in call if kernel[key] is not None]
    return sum(known) if known else None


def _mean_count(calls: list[list[Row]], key: str) -> Any:
    whole = [call for call in calls if _is_counted(call)]
    found = [kernel["counted"] for call in whole for kernel in call]
    if key == "tensor_by":
        return sorted({unit for each in found for unit in each[key]})
    return sum(each[key] for each in found) / len(whole) if whole else None


def _is_counted(call: list[Row]) -> bool:
    return all("counted" in kernel for kernel in call)


def counts(path: Path) -> dict[str, list[Row]]:
    """Return what ncu counted in the kernels of each function, in order."""
    found: dict[str, list[Row]] = defaultdict(list)
    if not path.exists():
        return found
    lines = [line for line in path.read_text().splitlines() if line.startswith('"')]
    reader = csv.DictReader(lines)
    for row in reader:
        if not row.get("ID", "").isdigit():  # the row of units
            continue
        found[function_of(row["Kernel Name"])].append(_counts(row))
    return found


def _counts(row: Row) -> Row:
    def number(metric: str) -> float:
        return float((row.get(metric) or "0").replace(",", "") or 0)

    ops = {key: number(key) for key in row if key and key.startswith("sm__ops_path_tensor_src")}
    scalar = sum(
        times * number(key)
        for op, times in SCALAR.items()
        for key in row
        if key and f"_op_{op}_pred_on" in key
    )
    return {
        "dram": number(DRAM),
        "l2": number(L2),
        "ncu_ns": number(TIME),
        "scalar": scalar,
        "tensor": sum(ops.values()),
        "tensor_by": [key.split("src_")[1].split(".")[0] for key, done in ops.items() if done],
    }


def write_table(rows: list[Row], options: argparse.Namespace) -> None:
    """Write the rows as JSON and as Markdown."""
    (options.out / "table.json").write_text(json.dumps(rows, indent=1))
    heads = ["model", "kernel", "unit", "bound", "us", "MB est.", "DRAM", "est./DRAM", "L2"]
    heads += ["GFLOP est.", "tensor", "fp32", "est./counted", "tensor inst."]
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for row in sorted(rows, key=lambda r: (r["model"], -r["duration_ns"] * r["calls"])):
        lines.append("| " + " | ".join(_cells(row)) + " |")
    (options.out / "table.md").write_text("\n".join(lines) + "\n")


def _cells(row: Row) -> list[str]:
    counted = None if row["tensor"] is None else max(row["tensor"], row["scalar"])
    return [
        row["model"],
        f"`{row['name'][:60]}` x{row['calls']}",
        row["unit"] or "-",
        row["bound"] or "-",
        f"{row['duration_ns'] / 1e3:.1f}",
        _scaled(row["bytes"], 1e6),
        _scaled(row["dram"], 1e6),
        _ratio(row["bytes"], row["dram"]),
        _scaled(row["l2"], 1e6),
        _scaled(row["flops"], 1e9),
        _scaled(row["tensor"], 1e9),
        _scaled(row["scalar"], 1e9),
        _ratio(row["flops"], counted),
        ", ".join(row["tensor_by"] or ()) or "-",
    ]


def _scaled(value: float | None, by: float) -> str:
    return "-" if value is None else f"{value / by:.3g}"


def _ratio(value: float | None, by: float | None) -> str:
    return f"{value / by:.2f}" if value and by else "-"


def units(options: argparse.Namespace) -> None:
    """Write which kernels products of each dtype run, what we call their unit, and how fast."""
    from profiler_ext.rooflines.kernel_units import unit_named

    lines = ["| product | kernel | unit | TFLOP/s |", "| --- | --- | --- | --- |"]
    for label, product, flops in _products():
        kernel, took_us = _longest(product)
        rate = flops / took_us / 1e6
        lines.append(f"| {label} | `{kernel[:110]}` | {unit_named(kernel) or '-'} | {rate:.1f} |")
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

    step = _eager_step(device_of(options))
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
        cells += [_scaled(row["bytes"], 1e6), _scaled(row["flops"], 1e6)]
        lines.append("| " + " | ".join(cells) + " |")
    (options.out / "eager.md").write_text("\n".join(lines) + "\n")
    print(lines[0], flush=True)


def _eager_step(device: str) -> Step:
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


if __name__ == "__main__":
    main()
