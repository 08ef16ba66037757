"""Launches of generated kernels, with their arguments, so that they can be made again alone.

Source: ``torch/_inductor/runtime/triton_heuristics.py``: ``CachingAutotuner.run``, which generated
code calls for each launch, and its ``launchers``, of which autotuning leaves one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from profiler_ext.isolation.guard import Observation
from profiler_ext.isolation.hook_protocols import Observed
from profiler_ext.torch_compat.names import running_names

_SAMPLE_BYTES = 8 << 20  # of floating-point values; what is larger repeats them
_WHOLE_BYTES = 1 << 30  # of integers, which may be indices
_ALIGNED_BYTES = 256


@dataclass(frozen=True, slots=True)
class _Storage:
    """The bytes of a storage that a launch's tensors lie in."""

    device: torch.device
    nbytes: int
    values: torch.Tensor  # on the host, ``uint8``: all, or the first that repeat

    def made_again(self) -> torch.Tensor:
        """Return the bytes on the device."""
        made = torch.empty(self.nbytes, dtype=torch.uint8, device=self.device)
        values = self.values.to(self.device)
        for at in range(0, self.nbytes, max(len(values), 1)):
            part = made[at : at + len(values)]
            part.copy_(values[: len(part)])
        return made


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor argument."""

    storage: int  # index of the storage
    offset_bytes: int
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]

    def within(self, storage: torch.Tensor) -> torch.Tensor:
        """Return the tensor."""
        span = storage[self.offset_bytes :]
        whole = span[: len(span) - len(span) % self.dtype.itemsize].view(self.dtype)
        return whole.as_strided(self.size, self.stride)


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch of a kernel: what it was given, and of which configuration it is."""

    kernel: Any
    storages: tuple[_Storage, ...]
    arguments: tuple[Any, ...]  # a ``_Tensor``, or the value of what is no tensor
    # Of each argument that holds integers, by its position, the least and the largest of them
    ranges: Mapping[int, tuple[int, int]]

    @property
    def config(self) -> dict[str, object]:
        """The configuration that autotuning chose."""
        (launcher,) = running_names.KERNEL_LAUNCHERS.of(self.kernel)
        config = running_names.LAUNCHER_CONFIG.of(launcher)
        return {
            **config.kwargs,
            "num_warps": config.num_warps,
            "num_stages": config.num_stages,
        }

    def made_arguments(self) -> list[Any]:
        """Return arguments like those that it was given, on the device."""
        storages = [each.made_again() for each in self.storages]
        return [
            each.within(storages[each.storage]) if isinstance(each, _Tensor) else each
            for each in self.arguments
        ]


class FirstLaunches:
    """Keeps the first launch of each kernel, by the file of its source."""

    def __init__(self) -> None:
        self._by_file: dict[str, Launch] = {}

    def observe(self, call: Observed) -> Observation:
        """Keep what a kernel is given, before it runs."""
        arguments = call.arguments
        kernel, given = arguments["self"], arguments["args"]
        file = running_names.KERNEL_FILE.of(kernel)
        if file is not None and file not in self._by_file and not _is_capturing():
            self._by_file[file] = _launch(kernel, given)
        yield

    def by_text(self) -> dict[str, Launch]:
        """Return them by the text of their source."""
        texts = dict[str, Launch]()
        for file, launch in self._by_file.items():
            try:
                texts[Path(file).read_text(encoding="utf-8").strip()] = launch
            except OSError:
                continue
        return texts


def _is_capturing() -> bool:
    """Tell whether a CUDA graph is being recorded, which no copy to the host may disturb."""
    cuda: Any = torch.cuda
    return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())


def _launch(kernel: Any, given: Sequence[Any]) -> Launch:
    spans = dict[int, list[torch.Tensor]]()
    for each in given:
        if isinstance(each, torch.Tensor):
            spans.setdefault(each.untyped_storage().data_ptr(), []).append(each)
    first = {at: _first_byte(tensors) for at, tensors in spans.items()}
    order = {at: number for number, at in enumerate(spans)}
    arguments = tuple(
        _tensor(each, order, first) if isinstance(each, torch.Tensor) else each for each in given
    )
    ranges = {
        at: (int(each.min()), int(each.max()))
        for at, each in enumerate(given)
        if isinstance(each, torch.Tensor) and _holds_integers(each) and each.numel()
    }
    storages = tuple(_storage(tensors, first[at]) for at, tensors in spans.items())
    return Launch(kernel, storages, arguments, ranges)


def _tensor(tensor: torch.Tensor, order: Mapping[int, int], first: Mapping[int, int]) -> _Tensor:
    at = tensor.untyped_storage().data_ptr()
    offset = _offset_bytes(tensor) - first[at]
    return _Tensor(order[at], offset, tensor.dtype, tuple(tensor.shape), tensor.stride())


def _first_byte(tensors: Sequence[torch.Tensor]) -> int:
    first = min(map(_offset_bytes, tensors))
    return first - first % _ALIGNED_BYTES


def _storage(tensors: Sequence[torch.Tensor], first: int) -> _Storage:
    end = max(map(_last_byte, tensors))
    bytes_of = torch.empty(0, dtype=torch.uint8, device=tensors[0].device)
    bytes_of.set_(tensors[0].untyped_storage(), first, (end - first,), (1,))
    is_whole = any(_holds_integers(each) for each in tensors)
    kept = bytes_of[: _WHOLE_BYTES if is_whole else _SAMPLE_BYTES]
    return _Storage(tensors[0].device, end - first, kept.detach().to("cpu", copy=True))


def _last_byte(tensor: torch.Tensor) -> int:
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((size - 1) * int(stride) for size, stride in pairs) if tensor.numel() else -1
    return _offset_bytes(tensor) + (last + 1) * tensor.element_size()


def _offset_bytes(tensor: torch.Tensor) -> int:
    return int(tensor.storage_offset()) * tensor.element_size()


def _holds_integers(tensor: torch.Tensor) -> bool:
    is_number = not (tensor.dtype.is_floating_point or tensor.dtype.is_complex)
    return is_number and tensor.dtype is not torch.bool
