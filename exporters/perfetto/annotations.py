"""Debug annotations: interned strings, and columns of arguments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

from profiler_ext.exporters.perfetto import encoding
from profiler_ext.records.events import Codes, Ints, MaskedInts

Argument = str | int | float | Sequence[str] | Sequence[int] | Mapping[str, int]

NAMES, CATEGORIES, GROUPS = "event_names", "event_categories", "correlation_id_str"
ARGUMENT_NAMES, _ARGUMENT_TEXTS = "debug_annotation_names", "debug_annotation_string_values"
ANNOTATION = encoding.key_of(pb.TrackEvent, "debug_annotations")
INT = encoding.key_of(pb.DebugAnnotation, "int_value")
DOUBLE = encoding.key_of(pb.DebugAnnotation, "double_value")
ENTRY = encoding.key_of(pb.DebugAnnotation, "dict_entries")
_INTERNED = encoding.key_of(pb.TracePacket, "interned_data")
KEY = encoding.key_of(pb.DebugAnnotation, "name_iid")
_TEXT = encoding.key_of(pb.DebugAnnotation, "string_value_iid")
_ITEM = encoding.key_of(pb.DebugAnnotation, "array_values")
MaskedFloats = np.ma.MaskedArray[Any, np.dtype[np.float64]]


class Texts:
    """The interned texts of one packet sequence."""

    def __init__(self) -> None:
        self._unsent: pb.InternedData | None = None
        self._numbers: dict[str, dict[str, int]] = defaultdict(dict)

    def number(self, table: str, text: str) -> int:
        """Return a text's number; a new text must be sent before it is used."""
        known = self._numbers[table]
        number = known.get(text)
        if number is None:
            number = known[text] = len(known) + 1
            if self._unsent is None:
                self._unsent = pb.InternedData()
            # A name from a trace may hold half a surrogate pair, which UTF-8 has no bytes for.
            encoded = text.encode("utf-8", "replace")
            entry = getattr(self._unsent, table).add(iid=number)
            if table in (_ARGUMENT_TEXTS, GROUPS):
                entry.str = encoded
            else:
                entry.name = encoded.decode()
        return number

    def unsent(self) -> bytes:
        """Return the packet field that sends new texts, and mark them as sent."""
        if self._unsent is None:
            return b""
        message, self._unsent = self._unsent, None
        return encoding.sized(_INTERNED, message.SerializeToString())

    def annotated(self, arguments: Mapping[str, Argument]) -> bytes:
        """Return arguments encoded as debug annotations."""
        encoded = b""
        for key, value in arguments.items():
            encoded += encoding.sized(ANNOTATION, self.named(key) + self._value(value))
        return encoded

    def named(self, key: str) -> bytes:
        """Return an annotation's name, encoded."""
        return KEY + encoding.varint(self.number(ARGUMENT_NAMES, key))

    def _value(self, value: Argument) -> bytes:
        if isinstance(value, int) and -(2**63) <= value < 2**63:
            return INT + encoding.varint(value)
        if isinstance(value, int):  # as a file may say that another tool wrote
            value = str(value)
        if isinstance(value, str):
            return _TEXT + encoding.varint(self.number(_ARGUMENT_TEXTS, value))
        if isinstance(value, float):
            return DOUBLE + encoding.double(value)
        if isinstance(value, Mapping):
            return b"".join(
                encoding.sized(ENTRY, self.named(key) + self._value(part))
                for key, part in value.items()
            )
        return b"".join(encoding.sized(_ITEM, self._value(item)) for item in value)


def present(arguments: Mapping[str, Argument | None]) -> dict[str, Argument]:
    """Return the arguments with a value: zero counts, an empty text or list does not."""
    return {
        key: value
        for key, value in arguments.items()
        if value is not None and (isinstance(value, int | float) or len(value))
    }


class ColumnArgument(Protocol):
    """An argument of its own value in each row."""

    def cells(self, texts: Texts, rows: Ints) -> encoding.Cells | None:
        """Return the encoded values of rows; ``None`` where there is none."""


@dataclass(frozen=True, slots=True)
class IntArgument:
    """Integers; masked ones are left out."""

    name: str
    values: Ints | MaskedInts

    def cells(self, texts: Texts, rows: Ints) -> encoding.Cells | None:
        """See :class:`ColumnArgument`."""
        values, bounds = _present(self.values, rows)
        return _annotations(texts.named(self.name) + INT, encoding.varints(values), bounds)


@dataclass(frozen=True, slots=True)
class FloatArgument:
    """Floats; masked ones are left out."""

    name: str
    values: MaskedFloats

    def cells(self, texts: Texts, rows: Ints) -> encoding.Cells | None:
        """See :class:`ColumnArgument`."""
        values, bounds = _present(self.values, rows)
        return _annotations(texts.named(self.name) + DOUBLE, encoding.doubles(values), bounds)


NumberArgument = IntArgument | FloatArgument


@dataclass(frozen=True, slots=True)
class DictArgument:
    """A dictionary of integers in each row."""

    name: str
    keys: Sequence[str]  # names of parts
    firsts: Ints  # start of each row's parts, and the end of the last
    key: Codes | Ints  # each part's index into ``keys``
    values: Ints

    def cells(self, texts: Texts, rows: Ints) -> encoding.Cells | None:
        """See :class:`ColumnArgument`."""
        bounds = encoding.offsets_of(self.firsts[rows + 1] - self.firsts[rows])
        if not bounds[-1]:
            return None
        at = np.repeat(self.firsts[rows] - bounds[:-1], np.diff(bounds)) + np.arange(bounds[-1])
        keys, numbers = self.key[at], np.zeros(len(self.keys), np.int64)
        used = np.zeros(len(self.keys), np.bool_)
        used[keys] = True
        for key in np.flatnonzero(used).tolist():
            numbers[key] = texts.number(ARGUMENT_NAMES, self.keys[key])
        names, values = encoding.varints(numbers[keys]), encoding.varints(self.values[at])
        size = len(KEY) + names.shape[1] + len(INT) + values.shape[1]
        entries = encoding.hstack(len(at), ENTRY + encoding.varint(size) + KEY, names, INT, values)
        return encoding.Cells(entries, bounds, ANNOTATION, texts.named(self.name))


def _present(column: Any, rows: Ints) -> tuple[npt.NDArray[Any], Ints]:
    """Return the unmasked values of rows, and the bounds of each row."""
    values, mask = np.ma.getdata(column)[rows], np.ma.getmask(column)
    if mask is np.ma.nomask or not (absent := mask[rows]).any():
        return values, np.arange(len(rows) + 1)
    return values[~absent], encoding.offsets_of(~absent)


def _annotations(name: bytes, values: encoding.Matrix, bounds: Ints) -> encoding.Cells | None:
    return encoding.Cells(values, bounds, ANNOTATION, name) if len(values) else None
