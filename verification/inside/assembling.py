"""The compile of a generated kernel for a GPU that is not there, by Triton and its assembler."""

from __future__ import annotations

import importlib.util
import re
import sys
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
