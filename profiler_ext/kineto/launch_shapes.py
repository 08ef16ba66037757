"""Kernels' launch shapes: blocks, registers and memory, for CUDA and HIP.

Source: ``libkineto/src/CuptiActivity.cpp``, ``GpuActivity<CUpti_ActivityKernel>::metadataJson``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from profiler_ext.kineto.names import Arg
from profiler_ext.records.events import Interned, Ints, MaskedInts, Trace, numbered

# The arguments of a kernel that tell it, as ``Events.launch_shape`` lists them
LAUNCH_SHAPE = (Arg.GRID, Arg.BLOCK, Arg.REGISTERS, Arg.SHARED_MEMORY, Arg.OCCUPANCY)
_LARGEST = 2**62


@dataclass(frozen=True, slots=True)
class LaunchShapes:
    """One row for each event; an unknown value is masked, or ``""``."""

    grid: Interned  # number of blocks, ``1024x1x1``
    block: Interned  # number of threads of a block
    registers_per_thread: MaskedInts  # registers of one thread
    shared_memory_bytes: MaskedInts  # shared memory of one block, static and dynamic
    occupancy_percent: MaskedInts  # Kineto's estimate of the achieved occupancy

    @property
    def codes(self) -> Ints:
        """A number for each row, the same for rows that are alike in all of it."""
        numbers = (self.registers_per_thread, self.shared_memory_bytes, self.occupancy_percent)
        sizes = (self.grid, self.block)
        return numbered([*(size.codes for size in sizes), *(each.filled(-1) for each in numbers)])

    def at(self, rows: Ints) -> LaunchShapes:
        """Return some of the rows."""
        grid, block = (Interned(size.codes[rows], size.strings) for size in (self.grid, self.block))
        numbers = (self.registers_per_thread, self.shared_memory_bytes, self.occupancy_percent)
        return LaunchShapes(grid, block, *(column[rows] for column in numbers))


def launch_shapes(trace: Trace, rows: Ints) -> LaunchShapes:
    """Return how the kernels of some events were launched."""
    shapes = trace.events.launch_shape
    codes = shapes.codes[rows].astype(np.int64)
    shape_values = [_values(text) for text in shapes.strings]
    grid, block, registers, shared_memory, occupancy = (
        zip(*shape_values, strict=True) if shape_values else [()] * 5
    )
    return LaunchShapes(
        grid=_interned(grid, codes),
        block=_interned(block, codes),
        registers_per_thread=_masked_integers(registers, codes),
        shared_memory_bytes=_masked_integers(shared_memory, codes),
        occupancy_percent=_masked_integers(occupancy, codes),
    )


def _values(text: str) -> Sequence[bytes]:
    if not text:
        return (b"",) * len(LAUNCH_SHAPE)
    return [bytes(each) for each in msgspec.json.decode(text, type=list[msgspec.Raw])]


def _interned(texts: Sequence[bytes], codes: Ints) -> Interned:
    table = {text: at for at, text in enumerate(dict.fromkeys(texts))}
    own = np.array([table[text] for text in texts], np.int32)
    return Interned(own[codes], tuple(_size(_value(text)) for text in table))


def _masked_integers(texts: Sequence[bytes], codes: Ints) -> MaskedInts:
    values = [_integer(_value(text)) for text in texts]
    filled = np.array([0 if each is None else each for each in values], np.int64)
    unknown = np.array([each is None for each in values], np.bool_)
    return np.ma.MaskedArray(filled[codes], unknown[codes])


def _value(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text) if text else None
    except msgspec.DecodeError:
        return None


def _size(value: Any) -> str:
    """Return ``1024x1x1`` for three whole numbers; anything else is unknown."""
    numbers = [_integer(each) for each in value] if isinstance(value, list) else []
    return "x".join(map(str, numbers)) if len(numbers) == 3 and None not in numbers else ""


def _integer(value: Any) -> int | None:
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value < _LARGEST else None
