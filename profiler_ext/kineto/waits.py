"""Owns the spellings of what the CPU waits for: a device, data, a copy of pageable memory."""

from __future__ import annotations

import re

_DEVICE_WAIT = re.compile(
    r"(cuda|hip)(Device|Stream|Event)Synchronize|cu(Ctx|Stream|Event)Synchronize"
)
_DATA_LOADER = re.compile(r"enumerate\(DataLoader\)#.+\.__next__")
_PAGEABLE = re.compile(r"Memcpy (?P<way>HtoD|DtoH) \((?:Pageable -> \w+|\w+ -> Pageable)\)")


def is_device_wait(name: str) -> bool:
    """Say whether the CPU waits in a runtime or driver call until a device is done."""
    return _DEVICE_WAIT.fullmatch(name) is not None


def is_data_loader(name: str) -> bool:
    """Say whether a range is the wait for a ``DataLoader``'s next batch.

    Source: ``torch/utils/data/dataloader.py``, ``_BaseDataLoaderIter.__next__``.
    """
    return _DATA_LOADER.fullmatch(name) is not None


def pageable_copy(name: str) -> str | None:
    """Return the way of a copy from or to pageable memory, ``HtoD`` or ``DtoH``."""
    match = _PAGEABLE.fullmatch(name)
    return None if match is None else match["way"]
