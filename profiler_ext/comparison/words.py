"""Owns the words of a comparison: what a row accounts for, how its sides match, what it came to."""

from __future__ import annotations

from profiler_ext.records import Term


class Account(Term, page="words.md", title="account", columns=()):
    """Which part of the steps' wall time a row of a comparison is of; together they are all."""

    DEVICE = (
        "device",
        "device time",
        "is the device time of launches that the steps enqueued, as the tables of a session sum it",
    )
    IDLE = ("idle", "device idle", "is when the device ran nothing")
    OVERLAPPED = (
        "overlapped",
        "launches that overlap",
        "is below zero: what launches ran at the same time as others, which is no wall time",
    )
    DISPLACED = (
        "displaced",
        "work of other steps",
        "is what the device ran in the steps' spans for others, less what it ran for them outside",
    )
    STEPS_OVERLAP = (
        "steps_overlap",
        "steps that overlap",
        "is idle time of a moment that lies in two steps, of which one has it already",
    )


class Match(Term, page="words.md", title="match", columns=()):
    """By what the two sides of a row of a comparison are known to be the same."""

    SAME = ("same", "the same", "has the same name on both sides, and of a line the same text")
    MOVED = ("moved", "moved", "is a line with the same text and another number, or function")
    EDITED = (
        "edited",
        "edited",
        "is a line whose text was changed: it stands between the same lines, and reads alike",
    )
    NUMBER = (
        "number",
        "the same number",
        "is a line without recorded text, in a file of which nothing says that it changed",
    )
    RENAMED = (
        "renamed",
        "renamed",
        "has another name: its content is the same, and nothing else has that",
    )
    RESPELT = (
        "respelt",
        "spelt otherwise",
        "is an op that compiled graphs and eager work spell differently",
    )
    SAME_WORK = (
        "same_work",
        "the same work",
        "is a kernel of another name that computes the same ops of the same lines",
    )
    SIMILAR_WORK = (
        "similar_work",
        "most of the work",
        "is a kernel that computes most of the same ops of the same lines",
    )
    NEW = ("new", "new", "is on the head's side alone")
    GONE = ("gone", "gone", "is on the base's side alone")


class Verdict(Term, page="words.md", title="verdict", columns=()):
    """What the difference of a row came to."""

    EQUAL = ("equal", "equal", "is of the same time on both sides, to the nanosecond")
    SLOWER = ("slower", "slower", "takes longer, by more than the noise")
    FASTER = ("faster", "faster", "takes less time, by more than the noise")
    NEW = ("new", "new", "ran in every step of the head, and in none of the base")
    GONE = ("gone", "gone", "ran in every step of the base, and in none of the head")
    NOISE = ("noise", "inside the noise", "differs by no more than steps or runs do by themselves")
    TOO_FEW = (
        "too_few",
        "too few steps",
        "cannot be told from noise, as there are too few steps",
        "record at least five steps of each side, or several runs",
    )
    NOT_COMPARABLE = (
        "not_comparable",
        "not comparable",
        "is of steps that were recorded, which a recording makes longer on one side than on the "
        "other, and no steps before the recording tell what they take in training",
        "record with three or more steps before the recording, as `profiler-ext run` does",
    )


CHANGED = (Verdict.SLOWER, Verdict.FASTER, Verdict.NEW, Verdict.GONE)
