"""The CUDA caching allocator's history, blocks and counts, and the storages of tensors.

Source: ``c10/cuda/CUDACachingAllocator.cpp``: a block counts as allocated until its free is
requested; ``torch/cuda/memory.py``, ``_record_memory_history`` and ``_snapshot``.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch

from profiler_ext.torch_compat.names import running_names

MAX_ENTRIES = 1_000_000
"""Of the history: of more the first are lost."""
_CPU = -1


def uses_cuda() -> bool:
    """Tell whether the program has initialized CUDA."""
    cuda: Any = torch.cuda
    return bool(cuda.is_initialized())


def lists_blocks() -> bool:
    """Tell whether the allocator in use lists its blocks."""
    cuda: Any = torch.cuda
    return bool(cuda.get_allocator_backend() == "native")


def why_no_history() -> str | None:
    """Return why the allocator's history cannot be recorded, if so."""
    cuda: Any = torch.cuda
    if not lists_blocks():
        return f"the CUDA allocator is {cuda.get_allocator_backend()}, which keeps no history"
    if running_names.HISTORY_ENABLED.get()():
        return "the program records the allocator's history itself"
    return None


def begin_history() -> None:
    """Record each allocation and free from here on, with Python stacks of allocations."""
    running_names.RECORD_HISTORY.get()(
        "all", context="alloc", stacks="python", max_entries=MAX_ENTRIES, clear_history=True
    )


def end_history() -> None:
    """End it, and drop what it kept."""
    running_names.RECORD_HISTORY.get()(None)


def snapshot() -> dict[str, Any]:
    """Return the allocator's segments with their blocks, and its history."""
    taken: dict[str, Any] = running_names.MEMORY_SNAPSHOT.get()()
    return taken


def counts() -> list[tuple[int, int, int, int]]:
    """Return each device's index, allocated, peak allocated, and reserved bytes."""
    names = (
        "allocated_bytes.all.current",
        "allocated_bytes.all.peak",
        "reserved_bytes.all.current",
    )
    result = []
    for device in range(torch.cuda.device_count()):
        stats: dict[str, Any] = torch.cuda.memory_stats(device)
        if stats:
            allocated, peak, reserved = (int(stats.get(name, 0)) for name in names)
            result.append((device, allocated, peak, reserved))
    return result


def storages(tensor: torch.Tensor) -> Iterator[tuple[int, int, int]]:
    """Yield device, address and bytes of each storage of a tensor, or of what a wrapper holds."""
    # Source: ``torch/utils/_python_dispatch.py``, ``is_traceable_wrapper_subclass``: DTensor, ...
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) and hasattr(
        tensor, "__tensor_flatten__"
    ):
        names, _ = tensor.__tensor_flatten__()
        for name in names:  # the mesh of a DTensor is among them from torch 2.13 on
            if is_tensor(inner := getattr(tensor, name)):
                yield from storages(inner)
        return
    if tensor.layout is not torch.strided or tensor.device.type not in ("cpu", "cuda"):
        return
    with suppress(RuntimeError, NotImplementedError):  # it has none, as fake tensors
        storage = tensor.untyped_storage()
        is_fake = storage.device.type == "meta"  # to read its address warns
        if not is_fake and (address := storage.data_ptr()):
            index = _CPU if tensor.device.type == "cpu" else tensor.device.index or 0
            yield index, address, storage.nbytes()


def alive() -> tuple[list[torch.Tensor], list[Any]]:
    """Return the tensors and the optimizers that Python holds."""
    tensors, optimizers = [], []
    for each in gc.get_objects():
        kind = type(each)
        if issubclass(kind, torch.Tensor):
            tensors.append(each)
        elif issubclass(kind, torch.optim.Optimizer):
            optimizers.append(each)
    return tensors, optimizers


def groups_of(optimizer: Any) -> list[list[Any]]:
    """Return the parameters of each group of an optimizer."""
    return [list(group["params"]) for group in optimizer.param_groups]


def states_of(optimizer: Any) -> list[tuple[Any, Any]]:
    """Return pairs of a parameter and what an optimizer keeps of it."""
    return list(optimizer.state.items())


def is_tensor(thing: object) -> bool:
    """Tell whether something is a tensor, by its type, without running user code."""
    return issubclass(type(thing), torch.Tensor)


def described(tensor: torch.Tensor) -> str:
    """Return the dtype and shape of a tensor: ``float32 8x512``."""
    try:
        shape = "x".join(map(str, tensor.shape))
        return f"{str(tensor.dtype).removeprefix('torch.')} {shape}".strip()
    except (RuntimeError, NotImplementedError):  # it has none yet, or no more
        return "a tensor"
