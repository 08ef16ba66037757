"""Owns which parts of which launches belong to a subject, on one rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiler_ext.exporters.explain.module_paths import is_below
from profiler_ext.exporters.explain.subjects import Kind, Subject
from profiler_ext.records import Analysis, Ints, Place

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The shares of the profiled steps that are of a subject, and the rest of their launches.

    Attributes:
        analysis: whose they are.
        own: rows of the shares that are its own.
        others: rows of the other shares of the same launches.
        launches: rows of those launches, each once.
    """

    analysis: Analysis
    own: Ints
    others: Ints
    launches: Ints

    def durations(self, shares: Ints) -> Ints:
        """Return how long these shares are."""
        return self.analysis.shares.duration_ns[shares]

    def launch_of(self, shares: Ints) -> Ints:
        """Return the launch of each of these shares."""
        return self.analysis.shares.launch[shares]

    def place_of(self, shares: Ints) -> Ints:
        """Return the place of each of these shares."""
        return self.analysis.shares.place[shares].astype(np.int64)


def chosen(analysis: Analysis, subject: Subject | None) -> Chosen:
    """Return what of an analysis belongs to a subject.

    Args:
        analysis: what attribution found.
        subject: a line, a module with those below it, or a kernel; ``None`` for all.
    """
    shares = analysis.shares
    within = ~np.ma.getmaskarray(analysis.launches.step)[shares.launch]
    own = within if subject is None else within & _of_subject(analysis, subject)
    launches = np.unique(shares.launch[own])
    others = within & ~own & np.isin(shares.launch, launches)
    return Chosen(analysis, np.flatnonzero(own), np.flatnonzero(others), launches)


def is_of(place: Place, subject: Subject) -> bool:
    """Tell whether a place is a line's, or a module's or one's below it.

    Args:
        place: the place.
        subject: a line or a module.
    """
    if subject.kind is Kind.LINE:
        return (place.file, place.line) == (subject.name, subject.line)
    return place.module is not None and is_below(place.module, subject.name)


def calls(place: Place, subject: Subject) -> bool:
    """Tell whether a line called what a place is of, and is not the place's own.

    Args:
        place: the place.
        subject: a line.
    """
    line = (subject.name, subject.line)
    if (place.file, place.line) == line:
        return False
    known = {(frame.file, frame.line) for frame in place.stack}
    known |= {(place.user_file or "", place.user_line or 0)}
    known |= {(place.caller_file or "", place.caller_line or 0)}
    return line in known


def _of_subject(analysis: Analysis, subject: Subject) -> Flags:
    if subject.kind is Kind.KERNEL:
        return _of_kernel(analysis, subject.name)[analysis.shares.launch]
    places = np.array([is_of(each, subject) for each in analysis.places], np.bool_)
    return places[analysis.shares.place]


def _of_kernel(analysis: Analysis, name: str) -> Flags:
    flags: Flags = analysis.launches.kernel.where(name) | analysis.launches.name.where(name)
    return flags
