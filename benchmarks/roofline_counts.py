"""What ncu counts: which counters it is asked for, and what its log says of each kernel."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

Row = dict[str, Any]
DRAM, L2, TIME = "dram__bytes.sum", "lts__t_bytes.sum", "gpu__time_duration.sum"
# Operations of one instruction of a thread; of each name the machine's ncu is asked for it.
SCALAR = {"ffma": 2, "fadd": 1, "fmul": 1, "dfma": 2, "dadd": 1, "dmul": 1}
TENSOR = re.compile(r"sm__ops_path_tensor_src_(?:bf16|fp16|tf32|fp8|fp64|int8)(?:_dst_\w+)?")


def ncu() -> str:
    """Return where ncu is."""
    found = shutil.which("ncu") or next(
        (str(p) for p in sorted(Path("/opt/nvidia").glob("nsight-compute/*/ncu"))), None
    )
    return found or "/usr/local/cuda/bin/ncu"


def known_metrics() -> list[str]:
    """Return which of the counters that we ask for the machine's ncu knows."""
    printed = subprocess.run(
        [ncu(), "--query-metrics"], capture_output=True, text=True, check=False, timeout=60
    ).stdout
    every = set(re.findall(r"^(\w+__\w+)", printed, re.MULTILINE))
    asked = [metric for metric in (DRAM, L2, TIME) if metric.split(".")[0] in every]
    for op in SCALAR:
        names = (f"{p}__sass_thread_inst_executed_op_{op}_pred_on" for p in ("sm", "smsp"))
        asked += [f"{name}.sum" for name in names if name in every][:1]
    tensor = {name for name in every if TENSOR.fullmatch(name)}
    asked += [f"{name}.sum" for name in sorted(n for n in tensor if "sparsity" not in n)]
    print(f"{len(every)} metrics, asked for: {' '.join(asked)}", flush=True)
    return asked


def function_of(name: str) -> str:
    """Return a kernel's function without its namespace, template and parameters."""
    bare = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    return re.split(r"[<(]", bare, maxsplit=1)[0].split("::")[-1].strip()


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
