"""Owns the bytes of protobuf fields, for messages of which there are a million.

``protobuf`` makes an object of each message in a message; here a field is its bytes at once.
The numbers and types of fields are read from the library's own descriptors.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

_BITS = 14
_LOW = (1 << _BITS) - 1
# Most numbers are small, and large ones are made of small ones, 14 bits at a time.
_LAST = [bytes((n,)) if n < 128 else bytes((n & 127 | 128, n >> 7)) for n in range(_LOW + 1)]
_MORE_FOLLOW = [bytes((n & 127 | 128, n >> 7 | 128)) for n in range(_LOW + 1)]
double: Callable[[float], bytes] = struct.Struct("<d").pack
fixed: Callable[[int], bytes] = struct.Struct("<Q").pack


def key_of(message: Any, name: str) -> bytes:
    """Return what stands before a field's value: its number and how the value is encoded.

    Args:
        message: the class of the message.
        name: the field's name.
    """
    field = message.DESCRIPTOR.fields_by_name[name]
    return varint(field.number << 3 | _wire_type(field))


def _wire_type(field: Any) -> int:
    if field.type in (field.TYPE_DOUBLE, field.TYPE_FIXED64):
        return 1
    return 2 if field.type == field.TYPE_MESSAGE else 0


def varint(number: int) -> bytes:
    """Encode an integer of 64 bits, with or without a sign.

    Args:
        number: the integer.

    Returns:
        Its bytes, of seven bits each, the lowest first.

    Raises:
        ValueError: It has more bits.
    """
    if 0 <= number <= _LOW:
        return _LAST[number]
    if not -(2**63) <= number < 2**64:
        raise ValueError(f"{number} does not fit into 64 bits")
    bits = number & 2**64 - 1
    return _MORE_FOLLOW[bits & _LOW] + varint(bits >> _BITS)


def sized(key: bytes, content: bytes) -> bytes:
    """Encode a field that is a message.

    Args:
        key: what ``key_of`` returned.
        content: the encoded message.
    """
    return key + varint(len(content)) + content
