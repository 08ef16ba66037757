"""What a program is: how it is started, and what a run must have recorded of it."""

from __future__ import annotations

from dataclasses import dataclass, field

WHOLE = "whole"  # both asked steps
PART = "part"  # some session
NONE = "none"  # there was nothing to record
ANY = "any"
SERIES = "series"  # at least one, in a folder of its own

IN_ITS_PLACE = "in its place"  # the program uses our profile where it uses torch's without us
FORK_MODES = ("run", "enabled", "profile")


@dataclass(frozen=True)
class Program:
    """A program of ``scripts``.

    Attributes:
        name: what it is called in the table.
        words: script and arguments.
        session: what a run must leave.
        modes: ways it is run with us: under ``run``, with capture enabled, within a profile,
            with our profile in the place of torch's.
        real: it is started as a process of its own, not as a fork of one that has torch.
        flags: options of the interpreter.
        environment: more variables; an empty one is taken away.
        files: more files beside the scripts.
        stdout: another place for standard output: ``closed`` or ``full``.
        options: more of what ``run`` is asked for.
        code: what ``run`` ends with, where it is not what the program ends with.
    """

    name: str
    words: tuple[str, ...]
    session: str = WHOLE
    modes: tuple[str, ...] = ("run",)
    real: bool = False
    flags: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    stdout: str = ""
    stderr: str = ""
    options: tuple[str, ...] = ()
    code: int | None = None


def programs_of(script: str, *calls: str, asked: str = "", **options) -> list[Program]:
    """Return a program for each way in which a script is called.

    Args:
        script: its name in ``scripts``, without ``.py``.
        *calls: the arguments of each.
        asked: more of what ``run`` is asked for.
        **options: the other attributes of them all.
    """
    return [
        Program(
            f"{script}: {call}{asked and f' ({asked})'}",
            (f"{script}.py", *call.split()),
            options=tuple(asked.split()),
            **options,
        )
        for call in calls
    ]
