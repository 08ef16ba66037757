"""Owns the times of events: microseconds as text to integer nanoseconds, each of them exact."""

from __future__ import annotations

import re
from decimal import Decimal

import msgspec
import numpy as np
import numpy.typing as npt

from profiler_ext.records import Ints

TIMES = range(-(2**61), 2**61)
"""What two of fit a column together; in nanoseconds, 73 years."""
_SHOWN_BYTES = 40
_REPAIRED_WORDS = {b"": "no {key}", b'""': "NaN, an infinity or an empty text as its {key}"}
"""What a repair leaves of a bare word (:func:`profiler_ext.kineto.strictness.repaired`)."""
_DIGITS = b"0123456789"
_DECIMALS, _MOST_DIGITS = 3, 15
_FEW_DECIMALS = re.compile(rb"(?:-?[1-7]?\d{1,12}(?:\.\d{1,3})?,)*+")
"""Below 2**43, where a double lies less than half a thousandth from the number it stands for."""
_LEAST_INEXACT_US = 2.0**42
"""From here on doubles lie more than half a nanosecond apart."""


def nanoseconds(key: str, texts: list[msgspec.Raw], positions: Ints) -> Ints:
    """Parse microseconds to integer nanoseconds; a double could not hold the old, long ones.

    Args:
        key: the key of the event that the times stand behind.
        texts: each as it stands in the file.
        positions: of the events in the file, for messages.

    Returns:
        The times.

    Raises:
        ValueError: One is missing, no number, or too large; the message names the event.
    """
    if not texts:
        return np.empty(0, np.int64)
    joined = b",".join([*texts, b""])
    if _have_three_decimals(joined):
        return np.fromstring(joined.replace(b".", b"")[:-1], np.int64, sep=",")
    if _FEW_DECIMALS.fullmatch(joined):
        times_us = np.fromstring(joined[:-1], np.float64, sep=",")
        floor_us = np.floor(times_us)
        rest_ns = np.rint((times_us - floor_us) * 1000)
        return floor_us.astype(np.int64) * 1000 + rest_ns.astype(np.int64)
    exact = [_exact(key, bytes(text), at) for text, at in zip(texts, positions, strict=True)]
    return np.array(exact, dtype=np.int64)


def of_doubles(times_us: npt.NDArray[np.float64]) -> Ints | None:
    """Return microseconds that were read as doubles in nanoseconds, if that is what was written.

    What was written lies within a double's own distance of whatever else has that double: below
    the limit, less than half a nanosecond. So nanoseconds with the same double are its text's.

    Args:
        times_us: the doubles next to what the file has.

    Returns:
        The times; ``None`` where one of them may be another.
    """
    if not (np.abs(times_us) < _LEAST_INEXACT_US).all():
        return None
    floor_us = np.floor(times_us)
    rest_ns = np.rint((times_us - floor_us) * 1000)
    times_ns = floor_us.astype(np.int64) * 1000 + rest_ns.astype(np.int64)
    return times_ns if (times_ns / 1000 == times_us).all() else None


def _have_three_decimals(joined: bytes) -> bool:
    """Say whether each number is digits, a point and three digits, and no more than a column takes.

    A pattern says so too, and takes four times as long.
    """
    marks = joined.translate(None, _DIGITS)
    if marks != b".," * (len(marks) // 2):
        return False
    characters = np.frombuffer(joined, np.uint8)
    commas = np.flatnonzero(characters == ord(","))
    points = commas - _DECIMALS - 1
    whole = points - np.append(0, commas[:-1] + 1)
    are_there = (whole >= 1) & (whole <= _MOST_DIGITS)
    return bool(are_there.all() and (characters[points] == ord(".")).all())


def _exact(key: str, text: bytes, position: int) -> int:
    shown = text[:_SHOWN_BYTES].decode()
    try:
        number = Decimal(text.decode()) * 1000
        # The exponent of a decimal may ask for more digits than there is memory.
        if abs(number) < TIMES.stop:
            return round(number)
    except (ArithmeticError, ValueError) as error:
        shape = _REPAIRED_WORDS.get(text, "{key} {shown}").format(key=key, shown=shown)
        raise ValueError(f"event {position} has {shape}, not a number of microseconds") from error
    raise ValueError(f"event {position} has {key} {shown}, over 73 years of microseconds")
