"""The CUDA caching allocator's history, blocks and counts, and the storages of tensors.

Source: ``c10/cuda/CUDACachingAllocator.cpp``: a block counts as allocated until its free is
requested; ``torch/cuda/memory.py``, ``_record_memory_history`` and ``_snapshot``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import torch

from profiler_ext.torch_compat.living import living
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


def pools_of_compiled_graphs() -> list[tuple[int, int]]:
    """Return the ids of the pools of the CUDA graphs that torch.compile recorded in this thread.

    Source: ``torch/_inductor/cudagraph_trees.py``: all graphs of a device share one.
    """
    if running_names.TREE_MANAGER.module not in sys.modules:
        return []
    get = running_names.TREE_MANAGER.get()
    with suppress(AssertionError):  # this thread has none
        managers = [get(device, False) for device in range(torch.cuda.device_count())]
        return [running_names.POOL_OF_TREES.of(each) for each in managers if each is not None]
    return []


def why_no_blocks() -> str | None:
    """Return why the allocator's blocks are not known, if so."""
    cuda: Any = torch.cuda
    if lists_blocks():
        return None
    return f"the CUDA allocator is {cuda.get_allocator_backend()}, which keeps no history"


def why_no_history() -> str | None:
    """Return why the allocator's history cannot be recorded, if so."""
    if (why := why_no_blocks()) is not None:
        return why
    if not _STACKS.is_on and running_names.HISTORY_ENABLED.get()():
        return "the program records the allocator's history itself"
    return None


def begin_history() -> None:
    """Record each allocation and free from here on, with Python stacks of allocations."""
    running_names.RECORD_HISTORY.get()(
        "all", context="alloc", stacks="python", max_entries=MAX_ENTRIES, clear_history=True
    )


def end_history() -> None:
    """End it, and drop what it kept; blocks go on to have their stacks if that was on before."""
    running_names.RECORD_HISTORY.get()(None)
    if _STACKS.is_on:
        begin_stacks()


class _Stacks:
    """Whether each block has the stack of its allocation, outside recorded steps too."""

    is_on = False


_STACKS = _Stacks()


def begin_stacks() -> bool:
    """Give each block the Python stack of its allocation; not if the program records its own."""
    if not _STACKS.is_on and (not lists_blocks() or running_names.HISTORY_ENABLED.get()()):
        return False
    running_names.RECORD_HISTORY.get()("state", context="state", stacks="python", max_entries=1)
    _STACKS.is_on = True
    return True


def has_stacks() -> bool:
    """Tell whether each block has its stack."""
    return _STACKS.is_on


def when_cuda_begins(callback: Callable[[], None]) -> None:
    """Call back when the program has initialized CUDA, now if it has."""
    running_names.LAZY_CALL.get()(callback)


def observe_out_of_memory(observer: Callable[[int, int, int, int], None]) -> None:
    """Call back with device, requested, allocated and free bytes where an allocation fails.

    Source: ``c10/cuda/CUDACachingAllocator.cpp``, ``malloc``: it calls back on the thread that
    allocates, without the allocator's lock, before it raises. An observer stays for the process.
    """
    running_names.ATTACH_OBSERVER.get()(observer)


def current_autograd_node() -> str:
    """Return the name of the backward node that this thread runs, if it runs one."""
    node = running_names.CURRENT_NODE.get()()
    return "" if node is None else str(node.name())


def use_of_device(device: int) -> tuple[int, int]:
    """Return the free and all bytes of a device, by the driver; the program must use it."""
    free_bytes, total_bytes = torch.cuda.mem_get_info(device)
    return int(free_bytes), int(total_bytes)


def major_capability(device: int) -> str:
    """Return the first number of a device's compute capability."""
    return str(torch.cuda.get_device_capability(device)[0])


_PROCESS = re.compile(r"process\s+(\d+) uses\s+([\d.]+) MB")


def use_of_other_processes(device: int) -> int | None:
    """Return the bytes that other processes use on a device; ``None`` where NVML does not tell."""
    cuda: Any = torch.cuda
    with suppress(Exception):  # NVML's own, of a library that need not be installed
        found = _PROCESS.findall(cuda.list_gpu_processes(device))
        if any(int(pid) == os.getpid() for pid, _ in found):
            others = (float(size) for pid, size in found if int(pid) != os.getpid())
            return round(sum(others) * (1 << 20))
    return None


def snapshot() -> dict[str, Any]:
    """Return the allocator's segments with their blocks, and its history."""
    taken: dict[str, Any] = running_names.MEMORY_SNAPSHOT.get()()
    return taken


def counts() -> list[tuple[int, ...]]:
    """Return of each device: index; allocated, peak, reserved, used and all bytes.

    The last two are the driver's, of devices that the program uses.
    """
    names = (
        "allocated_bytes.all.current",
        "allocated_bytes.all.peak",
        "reserved_bytes.all.current",
    )
    result: list[tuple[int, ...]] = []
    for device in range(torch.cuda.device_count()):
        stats: dict[str, Any] = torch.cuda.memory_stats(device)
        if stats:
            allocated, peak, reserved = (int(stats.get(name, 0)) for name in names)
            free, total = use_of_device(device) if reserved else (0, 0)
            result.append((device, allocated, peak, reserved, total - free, total))
    return result


Place = tuple[int, int, int]
"""The device of a storage, its address and its bytes."""


def storages(tensor: torch.Tensor) -> tuple[Place, ...]:
    """Return the storages of a tensor, or of what a sparse one or a wrapper holds."""
    kind = type(tensor)
    # Source: ``torch/utils/_python_dispatch.py``, ``is_traceable_wrapper_subclass``: DTensor, ...
    if kind is not torch.Tensor and kind is not torch.nn.Parameter:
        if hasattr(tensor, "__tensor_flatten__"):
            names, _ = tensor.__tensor_flatten__()  # the mesh of a DTensor is among them
            return _storages_of(getattr(tensor, name) for name in names)
        if running_names.FAKE_TENSOR.is_type_of(tensor):
            return ()  # torch warns of a read of its address
    # Of all tensors of a step: what is cheapest to ask comes first.
    if tensor.is_cuda:
        device = tensor.get_device()
    elif tensor.is_cpu:
        device = _CPU
    else:
        return ()
    layout = tensor.layout
    if layout is not torch.strided:
        parts = _PARTS.get(layout, ())
        return _storages_of(getattr(tensor, name)() for name in parts)
    try:
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
    except (RuntimeError, NotImplementedError):  # it has none
        return ()
    return ((device, address, storage.nbytes()),) if address else ()


def address_of(tensor: torch.Tensor) -> int:
    """Return where the data of a plain tensor begins; 0 of others."""
    if type(tensor) is torch.Tensor or type(tensor) is torch.nn.Parameter:
        try:
            return tensor.data_ptr()
        except (RuntimeError, NotImplementedError):  # it has none
            return 0
    return 0


def _storages_of(tensors: Iterable[object]) -> tuple[Place, ...]:
    return tuple(place for each in tensors if is_tensor(each) for place in storages(each))  # type: ignore[arg-type]


_COMPRESSED_ROWS = ("crow_indices", "col_indices", "values")
_COMPRESSED_COLUMNS = ("ccol_indices", "row_indices", "values")
_PARTS = {
    # ``indices`` and ``values`` are of coalesced tensors alone
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: _COMPRESSED_ROWS,
    torch.sparse_bsr: _COMPRESSED_ROWS,
    torch.sparse_csc: _COMPRESSED_COLUMNS,
    torch.sparse_bsc: _COMPRESSED_COLUMNS,
}
"""What a tensor of a layout holds: it has no storage of its own."""


def buckets_of(module: torch.nn.Module) -> list[torch.Tensor]:
    """Return the buckets of a ``DistributedDataParallel``, nothing of another module.

    Source: ``torch/csrc/distributed/c10d/reducer.cpp``, ``get_grad_buckets``, which makes zeros
    like each: no other method shows them. Nothing is allocated.
    """
    if not isinstance(module, torch.nn.parallel.DistributedDataParallel):
        return []
    seen: list[torch.Tensor] = []

    def instead(_: object, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is not torch.ops.aten.zeros_like.default:
            return function(*args, **(kwargs or {}))
        seen.append(args[0])
        return args[0]

    mode = running_names.DISPATCH_MODE.get()
    with type("Buckets", (mode,), {"__torch_dispatch__": instead})():
        running_names.BUCKETS_OF_REDUCER.of(module.reducer)()
    return seen


def alive() -> tuple[list[torch.Tensor], list[Any]]:
    """Return the tensors and the optimizers that Python holds."""
    tensors: list[torch.Tensor] = []
    optimizers: list[Any] = []
    for each in living(torch.Tensor, torch.optim.Optimizer):
        (tensors if is_tensor(each) else optimizers).append(each)
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


def own_gradient(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the gradient of a leaf; of other tensors torch warns if it is read."""
    return tensor.grad if tensor.is_leaf and tensor.requires_grad else None


def described(tensor: torch.Tensor) -> str:
    """Return the dtype and shape of a tensor: ``float32 8x512``."""
    try:
        shape = "x".join(map(str, tensor.shape))
        return f"{str(tensor.dtype).removeprefix('torch.')} {shape}".strip()
    except (RuntimeError, NotImplementedError):  # it has none yet, or no more
        return "a tensor"
