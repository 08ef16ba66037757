"""The version of this package, and whether another one is newer."""

from __future__ import annotations

import re

VERSION = "0.3.0"
_RELEASE = re.compile(r"\d{1,9}(?:\.\d{1,9}){0,9}")


def is_newer(version: str) -> bool:
    """Tell whether a version, ``0.4.0`` or ``0.4.0.dev1``, is newer than this one."""
    return _release(version) > _release(VERSION)


def _release(version: str) -> tuple[int, ...]:
    match = _RELEASE.match(version)
    numbers = [int(number) for number in match[0].split(".")] if match else [0]
    while numbers and not numbers[-1]:  # 0.3 is 0.3.0
        numbers.pop()
    return tuple(numbers)
