"""Owns the spellings of what holds up the CPU: waits, data, allocations, copies, compilers."""

from __future__ import annotations

import re

from profiler_ext.kineto import classify, names
from profiler_ext.kineto.communication import is_communication

_DEVICE_WAIT = re.compile(r"_*(cu|cuda|hip|ur|xpu|ze)\w*(Synchronize|QueueFinish|EventWait)\w*")
_ALLOCATION = re.compile(
    r"_*(cu|cuda|hip)(Malloc|Free|HostAlloc|HostMalloc|HostFree|HostRegister|HostUnregister"
    r"|Mem(Alloc|Free|Create|Map|Unmap|Release|Address|SetAccess|HostAlloc))\w*"
)
_FREE = re.compile(r"_*(cu|cuda|hip)(Mem)?Free\w*")
_DATA_LOADER = re.compile(r"enumerate\(Data(Loader|Pipe)\)#.+")
_HOST_COLLECTIVE = re.compile(r"(gloo|mpi|ucc):.+")
_OF_SOME_HOST = re.compile(
    r"Memcpy \w+ \((?:(?:Host|Memory) -> \w+|\w+ -> (?:Host|Memory))\)|dma_request"
)
_PAGEABLE = re.compile(r"Memcpy (?P<way>HtoD|DtoH) \((?:Pageable -> \w+|\w+ -> Pageable)\)")


def is_device_wait(name: str) -> bool:
    """Say whether the CPU waits in a runtime or driver call until a device is done."""
    return _DEVICE_WAIT.fullmatch(name) is not None


def is_free(name: str) -> bool:
    """Say whether a call frees memory of a device, for which it waits until the device is done."""
    return _FREE.fullmatch(name) is not None


def is_data_loader(name: str) -> bool:
    """Say whether a range is the wait for a ``DataLoader``'s next batch.

    Source: ``torch/utils/data/dataloader.py``, ``_BaseDataLoaderIter.__next__``.
    """
    return _DATA_LOADER.fullmatch(name) is not None


def pageable_copy(name: str) -> str | None:
    """Return the way of a copy from or to pageable memory, ``HtoD`` or ``DtoH``."""
    match = _PAGEABLE.fullmatch(name)
    return None if match is None else match["way"]


def is_copy_of_unknown_memory(name: str) -> bool:
    """Tell whether it copies from or to a host's memory, and does not say if that is pageable.

    Source: ``libkineto/src/RocprofActivity_inl.h`` (``Host -> Device``).
    """
    return _OF_SOME_HOST.fullmatch(name) is not None


def is_allocation(name: str) -> bool:
    """Tell whether a runtime or driver call allocates memory, or frees it."""
    return _ALLOCATION.fullmatch(name) is not None


def is_host_collective(name: str) -> bool:
    """Tell whether the event is a collective that the CPU does itself."""
    return _HOST_COLLECTIVE.fullmatch(name) is not None


def is_compiling_or_recording(name: str) -> bool:
    """Tell whether torch compiles, times kernels to choose one, or records a CUDA graph."""
    timed = name.endswith("(dynamo_timed)")
    return timed or classify.is_compiling(name) or names.is_graph_recording(name)


def is_calling(name: str) -> bool:
    """Tell whether an annotation is a part of calling a compiled graph, or a collective."""
    is_mark = names.is_call_mark(name) or names.is_clock_mark(name)
    return is_mark or names.is_graph_marker(name) or is_communication(name)
