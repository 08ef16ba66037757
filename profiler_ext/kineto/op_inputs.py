"""The inputs of ops in a trace, where shapes were recorded (``record_shapes``)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from profiler_ext.kineto.names import Arg
from profiler_ext.kineto.raw_events import event_arguments
from profiler_ext.records.events import Ints, RawEvents

_DTYPES: Mapping[str, str] = {
    "float": "float32",
    "double": "float64",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "c10::Float8_e4m3fn": "float8_e4m3fn",
    "c10::Float8_e5m2": "float8_e5m2",
    "long int": "int64",
    "int": "int32",
    "short int": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "bool": "bool",
}
_SAMPLE_SIZE = 100
Value = bool | int | tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class OpInput:
    """One input of an op."""

    dtype: str | None = None  # of a tensor, as torch spells it, else ``None``
    sizes: tuple[int, ...] = ()  # of a tensor
    strides: tuple[int, ...] = ()  # of a tensor; empty where the trace has none
    is_absent: bool = False  # an optional input that was not given
    # A whole number, a truth value or a list of them, of anything but a tensor; ``None`` where
    # unknown
    value: Value = None

    @property
    def elements(self) -> int:
        """How many elements it has in memory: what is expanded is there once."""
        pairs = zip(self.sizes, self.strides or (1,) * len(self.sizes), strict=False)
        return math.prod(size for size, stride in pairs if stride)


class _InputArgs(msgspec.Struct, gc=False):
    """The arguments with the inputs, as in the trace: many ops have the same."""

    sizes: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name=Arg.INPUT_DIMS.value)
    types: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name=Arg.INPUT_TYPES.value)
    strides: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name=Arg.INPUT_STRIDES.value)
    values: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name=Arg.CONCRETE_INPUTS.value)


class _Event(msgspec.Struct, gc=False):
    args: _InputArgs = msgspec.field(default_factory=_InputArgs)


_DECODER = msgspec.json.Decoder(_Event)
_ARGUMENTS = tuple(field.encode_name.encode() for field in msgspec.structs.fields(_InputArgs))


def _input_args(event: bytes) -> bytes | None:
    """Return the inputs of an op's event, if shapes were recorded."""
    # Source: ``torch/csrc/profiler/util.cpp``, ``inputTypes`` and ``inputSizes``; a list of tensors
    # has its type there and no sizes.
    if b'"Input Dims"' not in event:
        return None
    try:
        decoded = _DECODER.decode(event).args
    except msgspec.DecodeError:
        return event  # what is no strict JSON is repaired where it is read
    named = zip(_ARGUMENTS, msgspec.structs.astuple(decoded), strict=True)
    return b'{"args": {%b}}' % b", ".join([b'"%b": %b' % pair for pair in named if pair[1]])


def _inputs(event: bytes | None) -> tuple[OpInput, ...] | None:
    decoded = {} if event is None else event_arguments(event)
    sizes, types = decoded.get(Arg.INPUT_DIMS), decoded.get(Arg.INPUT_TYPES)
    if not isinstance(sizes, list) or not isinstance(types, list) or len(sizes) != len(types):
        return None
    strides = _padded(decoded.get(Arg.INPUT_STRIDES), len(sizes))
    values = _padded(decoded.get(Arg.CONCRETE_INPUTS), len(sizes))
    return tuple(map(_input, types, sizes, strides, values))


@dataclass(frozen=True, slots=True)
class InputsOfOps:
    """The inputs of some ops; many ops have the same."""

    # The inputs; ``None`` where shapes were not recorded
    distinct: tuple[tuple[OpInput, ...] | None, ...]
    codes: Ints  # which of them each op has


def inputs_of(raw: RawEvents, positions: Ints) -> InputsOfOps:
    """Return the inputs of some ops."""
    # Shapes are recorded of all ops or of none, and reading each of a million takes seconds.
    if not any(_inputs(_input_args(event)) for event in raw.at(positions[:_SAMPLE_SIZE])):
        return InputsOfOps((None,), np.zeros(len(positions), np.int64))
    table: dict[bytes | None, int] = {}
    codes = [table.setdefault(_input_args(event), len(table)) for event in raw.at(positions)]
    return InputsOfOps(tuple(map(_inputs, table)), np.array(codes, np.int64))


def _padded(decoded: Any, length: int) -> list[Any]:
    return decoded if isinstance(decoded, list) and len(decoded) == length else [None] * length


def _input(kind: Any, sizes: Any, strides: Any, value: Any) -> OpInput:
    dtype = _DTYPES.get(kind) if isinstance(kind, str) else None
    if dtype is None or not _are_sizes(sizes):
        return OpInput(is_absent=kind == "", value=_value(value))
    fits = _are_sizes(strides) and len(strides) == len(sizes)
    return OpInput(dtype, tuple(sizes), tuple(strides) if fits else ())


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(each) is int and each >= 0 for each in values)


def _value(text: Any) -> Value:
    try:
        decoded = msgspec.json.decode(text.lower()) if isinstance(text, str) else None
    except msgspec.DecodeError:
        return None
    if isinstance(decoded, list):
        return tuple(decoded) if all(isinstance(each, bool | int) for each in decoded) else None
    return decoded if isinstance(decoded, bool | int) else None
