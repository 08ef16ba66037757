"""What stands in for a compiler and a GPU where only the generated code is asked for."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch._inductor import config
from torch._inductor.async_compile import AsyncCompile

_COMBINED = 8


class _Kernel:
    """A Triton kernel that does nothing."""

    def run(self, *_: object, **__: object) -> None:
        """Do nothing."""


@contextlib.contextmanager
def stubbed(device: str) -> Iterator[None]:
    """On the CPU, make kernels that do nothing, and buffers of zeros (zero is a valid index).

    Args:
        device: ``cpu`` for C++ code, ``triton`` for Triton code (where triton is installed);
            on any other all is real.
    """
    patches: list[Any] = [config.patch(force_disable_caches=True)]
    if device in ("cpu", "triton"):
        guards = torch._C._dynamo.guards
        patches += [
            config.patch({"cpp.vec_isa_ok": True, "compile_threads": 1}),
            mock.patch.object(AsyncCompile, "cpp_pybinding", lambda *_: _do_nothing),
            mock.patch.object(guards, "_empty_strided_cpu", _zeros),
        ]
    if device == "triton":
        patches += [*_triton_on_the_cpu()]
    with contextlib.ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for patch in patches:
            stack.enter_context(patch)
        yield


def _triton_on_the_cpu() -> Iterator[Any]:
    from torch._inductor.scheduler import ForeachKernelSchedulerNode
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    seen = mock.Mock()
    seen.get_current_target.return_value = GPUTarget("cuda", 90, 32)
    driver.set_active(seen)
    yield config.patch(cpu_backend="triton")
    yield mock.patch.object(AsyncCompile, "triton", lambda *_, **__: _Kernel())
    grouping = "group_algorithm_for_combo_kernels"
    yield mock.patch.object(ForeachKernelSchedulerNode, grouping, staticmethod(_combined))


def _combined(scheduler: Any) -> list[list[Any]]:
    """Group what may be one combo kernel as torch does on a GPU; on the CPU it groups nothing."""
    return [
        list(level)[start : start + _COMBINED]
        for level in scheduler._topological_sort_nodes()
        for start in range(0, len(level), _COMBINED)
    ]


def _do_nothing(*_: object) -> None:
    pass


def _zeros(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype).zero_()
