"""Owns how kernels were launched, as Kineto tells of each: its blocks, registers and memory.

Kineto gives ``grid``, ``block``, ``registers per thread``, ``shared memory`` and ``est. achieved
occupancy %`` of a kernel of CUDA's and of HIP's, and nothing of the CPU's. Source:
``libkineto/src/CuptiActivity.cpp``, ``GpuActivity<CUpti_ActivityKernel>::metadataJson``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from profiler_ext.kineto.events import event_arguments
from profiler_ext.kineto.names import Arg, Category
from profiler_ext.kineto.recording import OriginalEvents
from profiler_ext.records import Codes, Interned, Ints, MaskedInts, RawEvents, Trace

_LARGEST = 2**62
_Told = tuple[bytes, bytes, bytes, bytes, bytes]


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
            distinct, own = np.unique(column, return_inverse=True)
            codes = np.unique(codes * len(distinct) + own.ravel(), return_inverse=True)[1].ravel()
        return codes.astype(np.int64)

    def at(self, rows: Ints) -> LaunchShapes:
        """Return some of the rows."""
        grid, block = (Interned(size.codes[rows], size.strings) for size in (self.grid, self.block))
        numbers = (self.registers_per_thread, self.shared_memory_bytes, self.occupancy_percent)
        return LaunchShapes(grid, block, *(column[rows] for column in numbers))


def launch_shapes(trace: Trace, rows: Ints) -> LaunchShapes:
    """Return how the kernels of some events were launched.

    Args:
        trace: the trace.
        rows: the events, as rows of its columns.

    Returns:
        One row for each of them.
    """
    is_kernel = trace.events.category.where(Category.KERNEL)[rows]
    told, of_kernel = _distinct(trace.raw, trace.events.position[rows[is_kernel]].tolist())
    codes = np.zeros(len(rows), np.int64)
    codes[is_kernel] = of_kernel
    grid, block, registers, shared_memory, occupancy = zip(*told, strict=True)
    return LaunchShapes(
        grid=_interned(grid, codes),
        block=_interned(block, codes),
        registers_per_thread=_whole(registers, codes),
        shared_memory_bytes=_whole(shared_memory, codes),
        occupancy_percent=_whole(occupancy, codes),
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


_DECODER = msgspec.json.Decoder(list[_Event])
_AT_ONCE = 1_000


def _distinct(raw: RawEvents, positions: Sequence[int]) -> tuple[list[_Told], Codes]:
    """Return what events tell, nothing first and each once, and which of it each tells."""
    known: dict[_Told, int] = {_values(_NOTHING): 0}
    written = raw.written if isinstance(raw, OriginalEvents) else raw  # what is added is not asked
    parts = (positions[at : at + _AT_ONCE] for at in range(0, len(positions), _AT_ONCE))
    told = (each for part in parts for each in _told(written, part))
    codes = [known.setdefault(_values(each), len(known)) for each in told]
    return list(known), np.array(codes, np.int32)


def _told(raw: RawEvents, positions: Sequence[int]) -> Iterable[_Args]:
    """Read some events in one go, or one by one where one of them is no strict JSON."""
    texts = [raw[at] for at in positions]
    texts = [text if b'"grid"' in text else b"{}" for text in texts]
    try:
        return [event.args for event in _DECODER.decode(b"[%b]" % b",".join(texts))]
    except msgspec.DecodeError:
        return map(_repaired, texts)


def _values(args: _Args) -> _Told:
    told = (args.grid, args.block, args.registers, args.shared_memory, args.occupancy)
    grid, block, registers, shared_memory, occupancy = map(bytes, told)
    return grid, block, registers, shared_memory, occupancy


def _repaired(raw: bytes) -> _Args:
    """Read an event that is no strict JSON; a value that is no number is none."""
    args = event_arguments(raw)
    names = {field.encode_name: field.name for field in msgspec.structs.fields(_Args)}
    known = {names[key]: value for key, value in args.items() if key in names}
    return _Args(**{name: msgspec.Raw(msgspec.json.encode(each)) for name, each in known.items()})


def _interned(texts: Sequence[bytes], codes: Ints) -> Interned:
    table = {text: at for at, text in enumerate(dict.fromkeys(texts))}
    own = np.array([table[text] for text in texts], np.int32)
    return Interned(own[codes], tuple(_size(_value(text)) for text in table))


def _whole(texts: Sequence[bytes], codes: Ints) -> MaskedInts:
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
    """Return ``1024x1x1`` of three whole numbers; anything else is not known."""
    numbers = [_integer(each) for each in value] if isinstance(value, list) else []
    return "x".join(map(str, numbers)) if len(numbers) == 3 and None not in numbers else ""


def _integer(value: Any) -> int | None:
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value < _LARGEST else None
