"""Owns how kernels were launched, as Kineto tells of each: its blocks, registers and memory.

Kineto gives ``grid``, ``block``, ``registers per thread``, ``shared memory`` and ``est. achieved
occupancy %`` of a kernel of CUDA's and of HIP's, and nothing of the CPU's. Source:
``libkineto/src/CuptiActivity.cpp``, ``GpuActivity<CUpti_ActivityKernel>::metadataJson``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import numpy as np

from profiler_ext.kineto.events import event_arguments
from profiler_ext.kineto.names import Arg, Category
from profiler_ext.records import Codes, Interned, Ints, MaskedInts, Trace

_LARGEST = 2**62
_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class LaunchShapes:
    """One row for each asked event; what is not told is masked, or ``""``.

    Attributes:
        grid: how many blocks, ``1024x1x1``.
        block: how many threads a block has.
        registers_per_thread: registers of one thread.
        shared_memory_bytes: shared memory of one block, static and dynamic.
        occupancy_percent: Kineto's estimate of the occupancy that the launch achieves.
    """

    grid: Interned
    block: Interned
    registers_per_thread: MaskedInts
    shared_memory_bytes: MaskedInts
    occupancy_percent: MaskedInts

    @property
    def codes(self) -> Ints:
        """A number for each row, the same for rows that are alike in all of it."""
        numbers = (self.registers_per_thread, self.shared_memory_bytes, self.occupancy_percent)
        codes: Ints = np.zeros(len(self.grid), np.int64)
        columns: list[Ints] = [size.codes.astype(np.int64) for size in (self.grid, self.block)]
        for column in (*columns, *(each.filled(-1) for each in numbers)):
            pairs = np.column_stack((codes, column))
            codes = np.unique(pairs, axis=0, return_inverse=True)[1].ravel().astype(np.int64)
        return codes


def launch_shapes(trace: Trace, rows: Ints) -> LaunchShapes:
    """Return how the kernels of some events were launched.

    Args:
        trace: the trace.
        rows: the events, as rows of its columns.

    Returns:
        One row for each of them.
    """
    is_kernel = trace.events.category.where(Category.KERNEL)[rows].tolist()
    positions = trace.events.position[rows].tolist()
    told = [
        _told(trace.raw[at]) if is_told else _NOTHING
        for at, is_told in zip(positions, is_kernel, strict=True)
    ]
    return LaunchShapes(
        grid=_interned([each.grid for each in told], _size),
        block=_interned([each.block for each in told], _size),
        registers_per_thread=_whole([each.registers for each in told]),
        shared_memory_bytes=_whole([each.shared_memory for each in told]),
        occupancy_percent=_whole([each.occupancy for each in told]),
    )


_ABSENT = msgspec.Raw(b"")


class _Args(msgspec.Struct, gc=False, frozen=True):
    """The values as the trace writes them: many are alike, and each is read once."""

    grid: msgspec.Raw = msgspec.field(default=_ABSENT, name=Arg.GRID.value)
    block: msgspec.Raw = msgspec.field(default=_ABSENT, name=Arg.BLOCK.value)
    registers: msgspec.Raw = msgspec.field(default=_ABSENT, name=Arg.REGISTERS.value)
    shared_memory: msgspec.Raw = msgspec.field(default=_ABSENT, name=Arg.SHARED_MEMORY.value)
    occupancy: msgspec.Raw = msgspec.field(default=_ABSENT, name=Arg.OCCUPANCY.value)


_NOTHING = _Args()


class _Event(msgspec.Struct, gc=False, frozen=True):
    args: _Args = _NOTHING


_DECODER = msgspec.json.Decoder(_Event)


def _told(raw: bytes) -> _Args:
    if b'"grid"' not in raw:
        return _NOTHING
    try:
        return _DECODER.decode(raw).args
    except msgspec.DecodeError:
        return _repaired(raw)


def _repaired(raw: bytes) -> _Args:
    """Read an event that is no strict JSON; a value that is no number is none."""
    args = event_arguments(raw)
    names = {field.encode_name: field.name for field in msgspec.structs.fields(_Args)}
    known = {names[key]: value for key, value in args.items() if key in names}
    return _Args(**{name: msgspec.Raw(msgspec.json.encode(each)) for name, each in known.items()})


def _interned(raws: Sequence[msgspec.Raw], read: Callable[[Any], str]) -> Interned:
    codes, texts = _numbered([bytes(raw) for raw in raws])
    return Interned(codes, tuple(read(_value(text)) for text in texts))


def _whole(raws: Sequence[msgspec.Raw]) -> MaskedInts:
    codes, texts = _numbered([bytes(raw) for raw in raws])
    values = [_integer(_value(text)) for text in texts]
    filled = np.array([0 if each is None else each for each in values], np.int64)
    unknown = np.array([each is None for each in values], np.bool_)
    return np.ma.MaskedArray(filled[codes], unknown[codes])


def _numbered(values: Sequence[_Key]) -> tuple[Codes, list[_Key]]:
    table = {value: at for at, value in enumerate(dict.fromkeys(values))}
    return np.fromiter(map(table.__getitem__, values), np.int32, len(values)), list(table)


def _value(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text) if text else None
    except msgspec.DecodeError:
        return None


def _size(value: Any) -> str:
    """Return ``1024x1x1`` of three whole numbers; anything else is not known."""
    numbers = [_integer(each) for each in value] if isinstance(value, list) else []
    return "x".join(map(str, numbers)) if len(numbers) == 3 and None not in numbers else ""


def _integer(value: Any) -> int | None:
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value < _LARGEST else None
