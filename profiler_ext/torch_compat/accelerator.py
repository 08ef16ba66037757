"""The accelerator in use: events on its stream, and what its libraries choose kernels by."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
from contextlib import suppress
from typing import Any

import torch


def uses_device() -> bool:
    """Tell whether this process uses an accelerator."""
    return _module_in_use() is not None


def device_event() -> Any | None:
    """Return an event recorded on the current stream; ``None`` without an accelerator."""
    module = _module_in_use()
    if module is None or _is_capturing(module):
        return None
    mark: Any = module.Event(enable_timing=True)
    mark.record()
    return mark


def elapsed_ns(begin: Any, end: Any) -> int | None:
    """Return the device time between two events; ``None`` while it is not known."""
    return round(begin.elapsed_time(end) * 1e6) if end.query() else None


def is_capturing() -> bool:
    """Tell whether the current stream captures a graph, and runs nothing."""
    module = _module_in_use()
    return module is not None and _is_capturing(module)


def _is_capturing(module: Any) -> bool:
    is_capturing = getattr(module, "is_current_stream_capturing", None)
    return is_capturing is not None and bool(is_capturing())


def _module_in_use() -> Any | None:
    """Return torch's module of the accelerator, if the program has initialized it."""
    # Checking availability would initialize the driver, which breaks programs that fork:
    # https://github.com/pytorch/pytorch/issues/40403.
    accelerator = torch.accelerator.current_accelerator(check_available=False)
    if accelerator is None or accelerator.type == "cpu":
        return None
    module: Any = torch.get_device_module(accelerator)
    return module if module.is_initialized() else None


def finish_cupti_teardown() -> None:
    """Call CUDA once, without waiting for the device, if Kineto may wait for a call.

    With ``TEARDOWN_CUPTI=1`` a thread of Kineto's waits after a recording until a CUDA call
    returns, and the process does not end before it (``teardownContext`` in
    ``libkineto/src/CuptiActivityApi.cpp``; https://github.com/pytorch/kineto/pull/1554).
    """
    cuda: Any = torch.cuda  # not typed
    if os.environ.get("TEARDOWN_CUPTI") == "1" and cuda.is_initialized():
        cuda.current_stream().query()


_VARIABLES = (
    *("CUBLAS", "CUDNN", "NVIDIA_TF32", "HIPBLAS", "ROCBLAS", "MIOPEN", "PYTORCH_TUNABLEOP"),
    *("TORCH_ALLOW_TF32", "TORCH_BLAS", "TORCH_CUBLAS", "TORCH_CUDNN", "TORCH_LINALG"),
)
"""Prefixes of the variables that change what libraries, or torch calling them, do."""


def choice_digest() -> str:
    """Return a digest of all that libraries choose their kernels by, except for their calls."""
    cudnn: Any = torch.backends.cudnn
    built_with = (torch.__version__, torch.version.cuda, torch.version.hip)
    values = (*built_with, cudnn.version(), cublas_version())
    versions = tuple(map(str, values))
    content = json.dumps(
        [
            _device(),
            versions,
            _settings(),
            sorted(pair for pair in os.environ.items() if pair[0].startswith(_VARIABLES)),
        ]
    )
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


def autotunes_convolutions() -> bool:
    """Tell whether each process benchmarks convolutions."""
    return bool(torch.backends.cudnn.benchmark)


def autotunes_matmul() -> bool:
    """Tell whether matrix products are benchmarked, or read from a tuning file."""
    cuda: Any = torch.backends.cuda  # a build without it cannot be asked
    return bool(cuda.is_built() and torch.cuda.tunable.is_enabled())


def _device() -> tuple[int, ...]:
    if not torch.cuda.is_available():
        return ()
    about: Any = torch.cuda.get_device_properties()
    return about.major, about.minor, about.multi_processor_count


def cublas_version() -> int | None:
    """Return the version of the loaded cuBLAS, which may differ from the build's, if any."""
    release = (torch.version.cuda or "").partition(".")[0]
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(f"libcublasLt.so.{release}", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        get_version = library.cublasLtGetVersion
        get_version.restype = ctypes.c_size_t
        return int(get_version())
    return None


def _settings() -> tuple[str, ...]:
    products: Any = torch.backends.cuda.matmul
    cudnn: Any = torch.backends.cudnn
    values = (
        products.fp32_precision,
        products.allow_fp16_reduced_precision_reduction,
        products.allow_bf16_reduced_precision_reduction,
        products.allow_fp16_accumulation,
        torch.backends.cuda.preferred_blas_library(),
        torch.backends.cuda.preferred_linalg_library(),
        cudnn.enabled,
        cudnn.benchmark,
        cudnn.benchmark_limit,
        cudnn.deterministic,
        cudnn.conv.fp32_precision,
        cudnn.rnn.fp32_precision,
        torch.are_deterministic_algorithms_enabled(),
    )
    return tuple(map(str, values))
