"""Owns the repair of what Kineto and others write that JSON does not know.

A repair keeps the length of the text, so that every event still lies where it lay.
"""

from __future__ import annotations

import codecs
import re

_CHUNK_BYTES = 1 << 20
_ASCII_ONLY = bytes(range(128)) + b"?" * 128
_NUMBER_WORD = rb"-?(?:NaN|nan|Infinity|inf)|N/A"
_NONSTANDARD_VALUE = re.compile(rb"[:,\[]\s*(?:" + _NUMBER_WORD + rb")\s*[,\]}]")
# Strings are passed over without a step of Python for each of them: a trace has millions.
_NEXT_WORD = re.compile(
    rb'(?:[^"NnIi/-]++|"(?:[^"\\]++|\\.)*+"|(?!' + _NUMBER_WORD + rb")[NnIi/-])*+"
    rb"(" + _NUMBER_WORD + rb")",
    re.DOTALL,
)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# An escape is taken whole, so that the `\u` after an escaped backslash is none.
_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)


def readable(text: bytes) -> bytes:
    """Return the text as valid UTF-8 of the same length.

    Names of functions that are gone are written as what lies there now:
    https://github.com/pytorch/pytorch/pull/186359.

    Args:
        text: the file.

    Returns:
        The text itself; where it is not UTF-8, with ``?`` for each byte outside ASCII.
    """
    return text if text.isascii() or _is_utf8(text) else text.translate(_ASCII_ONLY)


def is_nonstandard(text: bytes) -> bool:
    """Say whether the text may hold what :func:`repaired` repairs."""
    return _NONSTANDARD_VALUE.search(text) is not None or _SURROGATE.search(text) is not None


def repaired(text: bytes) -> bytes:
    """Make strict JSON of a trace with bare ``NaN``, ``inf`` or ``N/A``, or half a surrogate pair.

    Args:
        text: the file.

    Returns:
        The text with each bare word an empty string, each half of a pair U+FFFD.
    """
    if _NONSTANDARD_VALUE.search(text):
        text = _without_number_words(text)
    return _ESCAPE.sub(_replace_surrogate, text) if _SURROGATE.search(text) else text


def strict(text: bytes) -> bytes:
    """Return strict JSON of the same length, whatever Kineto wrote.

    Args:
        text: one event; for a whole file, first try whether it is strict as it stands.

    Returns:
        The text, changed only where it was not strict.
    """
    utf8 = readable(text)
    return repaired(utf8) if is_nonstandard(utf8) else utf8


def _is_utf8(text: bytes) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for at in range(0, len(text), _CHUNK_BYTES):
            decoder.decode(text[at : at + _CHUNK_BYTES])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _without_number_words(text: bytes) -> bytes:
    """Put an empty string for each word; each is looked for where the one before it ended."""
    changed = bytearray(text)
    match = _NEXT_WORD.match(text)
    while match is not None:
        begin, end = match.span(1)
        changed[begin:end] = b'""'.ljust(end - begin)
        match = _NEXT_WORD.match(text, end)
    return bytes(changed)


def _replace_surrogate(match: re.Match[bytes]) -> bytes:
    return match[0] if match[1] is None else b"\\ufffd"
