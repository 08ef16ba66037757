"""The compile of a kernel for a GPU that is not there, by Triton and its assembler."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from profiler_ext.inside import line_table
from profiler_ext.inside.line_table import LineTable
from profiler_ext.records.kernel_lines import KernelSource

_DEVICE = re.compile(r"DeviceProperties\(type='[^)]*\)")
_H100 = (
    "DeviceProperties(type='cuda', index=0, multi_processor_count=132, cc=90, major=9, "
    "regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, "
    "max_threads_per_block=1024, warp_size=32)"
)


def tables(source: KernelSource, folder: Path, most: int = 1) -> Iterator[LineTable]:
    """Yield the line tables of a kernel's first configurations."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    text = _DEVICE.sub(_H100, source.text)
    file = folder / f"k{abs(hash(source.text)):x}.py"
    file.write_text(text)
    tuner = _tuner(file)
    for config in tuner.configs[:most]:
        meta = tuner._create_compile_meta(config)
        code = ASTSource(tuner.fn, meta["signature"], meta["constants"], meta["configs"][0])
        options = tuner._create_compile_options(config, meta)
        made = triton.compile(code, target=GPUTarget("cuda", 90, 32), options=options)
        metadata = made.metadata._asdict()
        yield line_table.read(made.asm["ptx"], made.asm["cubin"], metadata)


_EXPRESSION = """
import triton
import triton.language as tl
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math

@triton.jit
def kernel(in_ptr0, in_ptr1, out_ptr0, XBLOCK: tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    x = tl.load(in_ptr0 + xindex, None)
    y = tl.load(in_ptr1 + xindex, None)
    z = {}
    tl.store(out_ptr0 + xindex, z + y, None)
"""
_EACH = 4  # elements of a thread


def instructions(expression: str) -> float:
    """Count what an expression of ``x`` and ``y``, float32, takes for each element on an H100.

    Conditional branches forward are taken: they are around what rare arguments need.
    """
    return (_executed(expression) - _executed("x")) / _EACH


def _executed(expression: str) -> int:
    code = _assembled(expression)
    at, count = 0, 0
    while at in code:
        text, count = code[at], count + 1
        branch = re.search(r"\bBRA\b.*?(0x[0-9a-f]+)", text)
        to = int(branch[1], 16) if branch else 0
        if re.match(r"EXIT\b", text) or (branch and not text.startswith("@") and to <= at):
            break
        at = to if to > at else at + 16
    return count


def _assembled(expression: str) -> dict[int, str]:
    """The machine code of a kernel, by offset."""
    import triton
    from torch._inductor.codecache import PyCodeCache
    from triton.backends import nvidia
    from triton.backends.compiler import GPUTarget

    module: Any = PyCodeCache.load(_EXPRESSION.format(expression))
    pointers = ("in_ptr0", "in_ptr1", "out_ptr0")
    source = triton.compiler.ASTSource(
        module.kernel,
        {**dict.fromkeys(pointers, "*fp32"), "XBLOCK": "constexpr"},
        {(3,): 128 * _EACH},
        {(at,): [["tt.divisibility", 16]] for at in range(3)},
    )
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        tool = Path(nvidia.__file__).parent / "bin" / "cuobjdump"
        done = subprocess.run(
            [tool, "-sass", file.name], capture_output=True, text=True, check=True
        )
    return {
        int(offset, 16): text.strip()
        for offset, text in re.findall(r"/\*([0-9a-f]{4})\*/\s+([^;]*);", done.stdout)
    }


def _tuner(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    with warnings.catch_warnings():  # of Triton without a driver for the CPU
        warnings.simplefilter("ignore")
        spec.loader.exec_module(module)
    found = [each for each in vars(module).values() if hasattr(each, "_create_compile_meta")]
    return found[-1]
