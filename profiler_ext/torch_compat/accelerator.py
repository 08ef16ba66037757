"""The accelerator in use: events on its stream, and by what its libraries choose kernels.

A mark is an event that is recorded on the stream. The program does not wait for it, and where no
accelerator is in use, or a stream is being captured into a graph, there is none.

With ``TEARDOWN_CUPTI=1`` in the environment Kineto detaches CUPTI after a recording: a thread of
its own waits until a call of CUDA comes to its end, and the process does not end before that
thread (``teardownContext`` in ``libkineto/src/CuptiActivityApi.cpp``, which torch has under
``third_party/kineto``; https://github.com/pytorch/kineto/pull/1554).

Where all of that is the same, the same call of a library launches the same kernels, unless it
tries out here and now which ones are fastest.
"""

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
    """Return an event recorded on the current stream of the accelerator; ``None`` without one."""
    module = _module_in_use()
    if module is None or _is_capturing(module):
        return None
    mark: Any = module.Event(enable_timing=True)
    mark.record()
    return mark


def elapsed_ns(begin: Any, end: Any) -> int | None:
    """Return the device's time between two marks; ``None`` while it is not there."""
    return round(begin.elapsed_time(end) * 1e6) if end.query() else None


def _is_capturing(module: Any) -> bool:
    """Tell whether work of the current stream is being captured into a graph."""
    is_capturing = getattr(module, "is_current_stream_capturing", None)
    return is_capturing is not None and bool(is_capturing())


def _module_in_use() -> Any | None:
    """Return torch's module of the accelerator, where the program has initialised it.

    To ask whether one is available would initialise its driver, which a program that forks must
    not find done: https://github.com/pytorch/pytorch/issues/40403.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=False)
    if accelerator is None or accelerator.type == "cpu":
        return None
    module: Any = torch.get_device_module(accelerator)
    return module if module.is_initialized() else None


def finish_cupti_teardown() -> None:
    """Call CUDA once, without waiting for the device, where Kineto may wait for a call.

    Raises:
        RuntimeError: The device has failed before.
    """
    cuda: Any = torch.cuda  # not typed
    if os.environ.get("TEARDOWN_CUPTI") == "1" and cuda.is_initialized():
        cuda.current_stream().query()


_VARIABLES = (
    *("CUBLAS", "CUDNN", "NVIDIA_TF32", "HIPBLAS", "ROCBLAS", "MIOPEN", "PYTORCH_TUNABLEOP"),
    *("TORCH_ALLOW_TF32", "TORCH_BLAS", "TORCH_CUBLAS", "TORCH_CUDNN", "TORCH_LINALG"),
)
"""How the names of those begin that libraries, or torch when it calls them, heed."""


def choice_digest() -> str:
    """Return what names all that libraries choose their kernels by, but for their calls."""
    content = json.dumps([_device(), _versions(), _settings(), _environment()])
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


def autotunes_convolutions() -> bool:
    """Tell whether the fastest convolution is looked for in each process."""
    return bool(torch.backends.cudnn.benchmark)


def autotunes_matmul() -> bool:
    """Tell whether the fastest product of matrices is looked for, or read in a file."""
    cuda: Any = torch.backends.cuda  # a build without it cannot be asked
    return bool(cuda.is_built() and torch.cuda.tunable.is_enabled())


def _device() -> tuple[int, ...]:
    if not torch.cuda.is_available():
        return ()
    about: Any = torch.cuda.get_device_properties()
    return about.major, about.minor, about.multi_processor_count


def _versions() -> tuple[str, ...]:
    cudnn: Any = torch.backends.cudnn
    built_with = (torch.__version__, torch.version.cuda, torch.version.hip)
    values = (*built_with, cudnn.version(), cublas_version())
    return tuple(map(str, values))


def cublas_version() -> int | None:
    """Return the version of cuBLAS that this process has loaded; ``None`` where it has none.

    Torch tells which one it was built with, and the loader may have found another.
    """
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


def _environment() -> list[tuple[str, str]]:
    heeded = (pair for pair in os.environ.items() if pair[0].startswith(_VARIABLES))
    return sorted(heeded)
