"""Finds the calls of AOTInductor's packages in a trace, by the kernels that their records name.

A process without capture marks no call of a package, nor does a C++ program. But each call launches
the package's generated kernels in their order, from one thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np

from profiler_ext.attribution.enclosing import EnclosingRanges
from profiler_ext.attribution.trace.launches import find_launches
from profiler_ext.attribution.trace.lookups import NO_ROW, take
from profiler_ext.attribution.trace.nesting import nest
from profiler_ext.kineto import names
from profiler_ext.records.events import Events, Ints, Thread
from profiler_ext.records.provenance import Provenance
from profiler_ext.records.vocabulary import SiteKind

_GENERATED = (SiteKind.TRITON, SiteKind.TRITON_TEMPLATE, SiteKind.CPP)


@dataclass(frozen=True, slots=True)
class Launched:
    """What one thread launched outside every marked call, in order."""

    kernels: Sequence[str]
    by_op: Sequence[bool]  # whether an operator launched it; a package's libraries have none


class PackageCall(NamedTuple):
    """One call of a package: the places of its first and last launch."""

    key: str
    first: int
    last: int


def package_marks(events: Events, packages: Mapping[str, Provenance]) -> tuple[bytes, ...]:
    """Return the marks of the calls of packages in a trace, as events of it."""
    return tuple(
        _mark(names.package_marker(call.key), thread, begins[call.first], ends[call.last])
        for thread, launched, begins, ends in _by_thread(events)
        for call in find_package_calls(launched, packages)
    )


def find_package_calls(
    launched: Launched, packages: Mapping[str, Provenance]
) -> tuple[PackageCall, ...]:
    """Return the calls of packages among what a thread launched.

    What several packages may have launched is no call, nor is anything of a package whose kernels
    begin as they end, unless all of them are in whole calls: a recording may begin within a call.
    """
    wanted = {key: kernels for key, each in packages.items() if (kernels := _kernels(each))}
    of_packages = frozenset(name for kernels in wanted.values() for name in kernels)
    places = [at for at, name in enumerate(launched.kernels) if name in of_packages]
    found, begin = list[PackageCall](), 0
    while begin < len(places):
        fitting = [
            key
            for key, kernels in wanted.items()
            if tuple(launched.kernels[at] for at in places[begin : begin + len(kernels)]) == kernels
        ]
        if len(fitting) == 1:
            last = begin + len(wanted[fitting[0]]) - 1
            found.append(PackageCall(fitting[0], places[begin], places[last]))
            begin = last
        begin += 1
    certain = [call for call in found if _is_certain(wanted[call.key], call.key, launched, found)]
    return tuple(_with_libraries(certain, launched, packages, frozenset(places)))


def _kernels(record: Provenance) -> tuple[str, ...]:
    return tuple(site.kernel for site in record.call_sites if site.kind in _GENERATED)


def _is_certain(
    kernels: tuple[str, ...], key: str, launched: Launched, found: Sequence[PackageCall]
) -> bool:
    if not any(kernels[-size:] == kernels[:size] for size in range(1, len(kernels))):
        return True
    own = frozenset(kernels)
    in_calls = len(kernels) * sum(call.key == key for call in found)
    return in_calls == sum(name in own for name in launched.kernels)


def _with_libraries(
    calls: Sequence[PackageCall],
    launched: Launched,
    packages: Mapping[str, Provenance],
    generated: frozenset[int],
) -> Iterator[PackageCall]:
    """Add the library calls before the first generated kernel and after the last one."""
    free = [not by_op and at not in generated for at, by_op in enumerate(launched.by_op)]
    before = 0  # where launches begin that are of no earlier call
    for at, call in enumerate(calls):
        sites = packages[call.key].call_sites
        first, last = call.first, call.last
        if sites[0].kind not in _GENERATED:
            first = _last_true(free, before, first)
        if sites[-1].kind not in _GENERATED:
            after = calls[at + 1] if at + 1 < len(calls) else None
            end = len(free) if after is None else after.first
            last = _first_false(free, last + 1, end) - 1
            # Between two calls, those of the one cannot be told from those of the other.
            if after is not None and last + 1 == end:
                is_shared = packages[after.key].call_sites[0].kind not in _GENERATED
                last = call.last if is_shared else last
                before = end if is_shared else last + 1
            else:
                before = last + 1
        else:
            before = last + 1
        yield PackageCall(call.key, first, last)


def _last_true(flags: Sequence[bool], begin: int, end: int) -> int:
    """Return where the flags that are set before ``end`` begin."""
    while end > begin and flags[end - 1]:
        end -= 1
    return end


def _first_false(flags: Sequence[bool], begin: int, end: int) -> int:
    while begin < end and flags[begin]:
        begin += 1
    return begin


def _by_thread(events: Events) -> Iterator[tuple[Thread, Launched, Ints, Ints]]:
    """Yield each thread with its launches outside marked calls, and when each was enqueued."""
    nesting = nest(events)
    enclosing, enqueued = EnclosingRanges(events, nesting), find_launches(events, nesting)
    rows = np.where(enqueued.call == NO_ROW, enqueued.event, enqueued.call)
    is_known = (enqueued.call != NO_ROW) | enqueued.on_cpu
    is_known &= take(enclosing.marker, enqueued.cpu, NO_ROW) == NO_ROW
    op = take(nesting.nearest(enclosing.is_op), enqueued.cpu, NO_ROW)
    begins, ends = events.start_ns[rows], events.end_of(rows)
    for thread in np.unique(events.thread[rows[is_known]]).tolist():
        own = np.flatnonzero(is_known & (events.thread[rows] == thread))
        own = own[np.lexsort((own, begins[own]))]
        event = enqueued.event[own].tolist()
        kernels = [names.kernel_name(events.name[row]) for row in event]
        launched = Launched(kernels, (op[own] != NO_ROW).tolist())
        yield events.threads[thread], launched, begins[own], ends[own]


def _mark(name: str, thread: Thread, begin_ns: int, end_ns: int) -> bytes:
    times = {"ts": _microseconds(int(begin_ns)), "dur": _microseconds(int(end_ns - begin_ns))}
    fields = {"ph": "X", "cat": names.Category.USER_ANNOTATION, "name": name}
    return msgspec.json.encode({**fields, "pid": thread.pid, "tid": thread.tid, **times})


def _microseconds(time_ns: int) -> msgspec.Raw:
    sign, size = "-" if time_ns < 0 else "", abs(time_ns)
    return msgspec.Raw(f"{sign}{size // 1000}.{size % 1000:03d}".encode())
