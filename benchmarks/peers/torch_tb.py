"""Asks torch-tb-profiler: what its TensorBoard plugin makes of a run before it shows anything.

Time by step and category with communication, by op and by kernel, and the trees they rest on: all
that its loader does for one worker, but here and not in a process of its own. ``torch_tb.py FILE``,
with a Python that has it.
"""

from __future__ import annotations

import json
import sys
import tempfile

from torch_tb_profiler.profiler.data import RunProfileData
from torch_tb_profiler.profiler.run_generator import RunGenerator


def main() -> None:
    """Print what the recording shows."""
    with tempfile.TemporaryDirectory() as cache:
        data = RunProfileData.parse("worker0", None, sys.argv[1], cache)
        run = RunGenerator("worker0", None, data).generate_run_profile()
    overview = run.overview["steps"]
    kernels, ops = run.kernel_table["data"], run.operation_table_by_name["data"]
    (total,) = [at for at, column in enumerate(kernels["columns"]) if "Total" in column["name"]]
    fields = {
        "steps": len(overview["rows"]),
        "kernels": len(kernels["rows"]),
        "ops": len(ops),
        "kernel_us": round(sum(row[total] for row in kernels["rows"])),
    }
    print(json.dumps(fields))


if __name__ == "__main__":
    main()
