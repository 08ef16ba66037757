"""Owns on which device and stream something ran, and its op's id, as each torch writes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from profiler_ext.kineto.event_json import ABSENT, Args, Id
from profiler_ext.records import Ints

_LAST_NUMBER = re.compile(r"(\d{1,18})\D*")
Numbers = Callable[[Sequence[Id]], Ints]


def devices_of(args: Sequence[Args], processes: Sequence[int | str], numbers: Numbers) -> Ints:
    """Return the device of each event that ran on one.

    Args:
        args: their arguments.
        processes: the track that holds each: of a device's events its number, which MTIA's
            events have nowhere else. Source: ``libkineto/src/output_json.cpp``.
        numbers: makes numbers of what a file has.
    """
    own = numbers([each.device for each in args])
    return np.maximum(_or(own, lambda: numbers(list(map(_number, processes)))), 0)


def streams_of(args: Sequence[Args], threads: Sequence[int | str], numbers: Numbers) -> Ints:
    """Return the stream of each event that ran on a device; an XPU's is its SYCL queue.

    Args:
        args: their arguments.
        threads: the track that holds each: of a device's events its stream.
        numbers: makes numbers of what a file has.
    """
    own = numbers([each.stream for each in args])
    own = _or(own, lambda: numbers([each.sycl_queue for each in args]))
    return np.maximum(_or(own, lambda: numbers(list(map(_number, threads)))), 0)


def external_ids_of(args: Sequence[Args], numbers: Numbers) -> Ints:
    """Return the external id of each event, which torch 1.8 and 1.9 write small.

    Args:
        args: the arguments of each event.
        numbers: makes a column of numbers of which some are absent.
    """
    own = numbers([each.external_id for each in args])
    return _or(own, lambda: numbers([each.small_external_id for each in args]))


def _or(own: Ints, other: Callable[[], Ints]) -> Ints:
    """Fill in what is absent; it is looked for only where something is."""
    is_absent = own == ABSENT
    return np.where(is_absent, other(), own) if is_absent.any() else own


def _number(track: int | str) -> Id:
    """Return the number in ``7`` and in ``stream 7``."""
    if isinstance(track, int):
        return track
    match = _LAST_NUMBER.search(track)
    return None if match is None else int(match[1])
