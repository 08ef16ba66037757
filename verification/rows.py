"""A harness's program in a process of its own, and the row that it leaves in a folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def row_of_process(
    name: str, words: Sequence[str], out: Path, environment: Mapping[str, str], limit_s: float
) -> Row:
    """Run a module, which writes ``NAME.json``; its output is in ``NAME.log``.

    Args:
        name: of the program, and of its row.
        words: the module and its options.
        out: the folder of both files.
        environment: what is added to this process's.
        limit_s: after so many seconds it is ended.

    Returns:
        The row; without one, and at the limit, a row with ``failure``.
    """
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.json"
    path.unlink(missing_ok=True)
    command = [sys.executable, "-W", "ignore", "-m", *words, "--out", str(out)]
    added = {**os.environ, **environment}
    with (out / f"{name}.log").open("w") as log:
        try:
            subprocess.run(command, env=added, stdout=log, stderr=log, check=False, timeout=limit_s)
        except subprocess.TimeoutExpired:
            return {"name": name, "failure": f"not done within {limit_s:g} s: see {log.name}"}
    if not path.exists():
        return {"name": name, "failure": f"the process ended without a row: see {log.name}"}
    row: Row = json.loads(path.read_text())
    return row


def gpus_of(count: int) -> list[str]:
    """The first of the devices that this process may use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return (visible.split(",") if visible else [str(at) for at in range(count)])[:count]
