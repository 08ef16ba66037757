"""Owns launches that are the same but for when they ran, taken together as one row.

A report of many steps holds each call site once, so its size follows the model and not the
number of launches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from profiler_ext.records import Analysis, Interned, Ints

_Identity = tuple[str, str, str, str, int | None, int | None]


@dataclass(frozen=True, slots=True)
class Site:
    """Launches of one kernel from one call site, with the same parts.

    Attributes:
        kernel: Inductor's name, or the event's where Inductor launched nothing.
        name: the event's own, which a library's call chose.
        kind: a ``LaunchKind``.
        scope: a ``Scope``.
        graph: index into ``Recording.graphs``.
        call_site: ordinal of the call site in its graph.
        launches: how many.
        duration_ns: of all of them.
        parts: index into ``Analysis.places`` and nanoseconds of all of them.
    """

    kernel: str
    name: str
    kind: str
    scope: str
    graph: int | None
    call_site: int | None
    launches: int
    duration_ns: int
    parts: tuple[tuple[int, int], ...]


def sites(analysis: Analysis) -> list[Site]:
    """Return the launches of the profiled steps by what they are, in order of first launch."""
    starts = _starts(analysis)
    groups: dict[tuple[_Identity, bytes], list[int]] = {}
    for launch, identity in _profiled(analysis):
        places = analysis.shares.place[starts[launch] : starts[launch + 1]]
        groups.setdefault((identity, places.tobytes()), []).append(launch)
    return [_site(analysis, key[0], np.array(group), starts) for key, group in groups.items()]


def _starts(analysis: Analysis) -> Ints:
    every = np.arange(len(analysis.launches) + 1)
    return np.searchsorted(analysis.shares.launch, every)


def _profiled(analysis: Analysis) -> Iterator[tuple[int, _Identity]]:
    launches = analysis.launches
    identities = zip(
        _names(launches.kernel),
        _names(launches.name),
        _names(launches.kind),
        _names(launches.scope),
        launches.graph.tolist(),
        launches.call_site.tolist(),
        strict=True,
    )
    within = ~np.ma.getmaskarray(launches.step)
    for launch, (kernel, name, kind, scope, graph, call_site) in enumerate(identities):
        if within[launch]:
            yield launch, (kernel or name, name, kind, scope, graph, call_site)


def _names(column: Interned) -> list[str]:
    return [column.strings[code] for code in column.codes.tolist()]


def _site(analysis: Analysis, identity: _Identity, group: Ints, starts: Ints) -> Site:
    first, last = starts[group[0]], starts[group[0] + 1]
    rows = starts[group][:, np.newaxis] + np.arange(last - first)
    places = analysis.shares.place[first:last].tolist()
    durations = analysis.shares.duration_ns[rows].sum(axis=0).tolist()
    total = int(analysis.launches.duration_ns[group].sum())
    return Site(*identity, len(group), total, tuple(zip(places, durations, strict=True)))
