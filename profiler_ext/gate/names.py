"""Owns which names a condition means: ``*`` and ``?`` within one part of a path, as in a shell."""

from __future__ import annotations

import re
from collections.abc import Hashable
from functools import lru_cache

from profiler_ext.comparison.matching.names import op_name
from profiler_ext.comparison.records import Subject
from profiler_ext.gate.conditions import Condition, Kind

NO_NAME = None


def matched_name(condition: Condition, subject: Subject) -> str | None:
    """Return which of what a condition names a subject is of: its name; ``None`` if of none.

    Args:
        condition: of a line, a module, an op or a kernel.
        subject: of one side, at its finest.
    """
    glob = condition.name or ""
    if condition.kind is Kind.LINE:
        return _line(glob, condition.lines, subject)
    if condition.kind is Kind.MODULE:
        return _module(glob, subject.module)
    if condition.kind is Kind.OP:
        op = subject.aten_op
        is_match = op is not None and (_is_like(glob, op) or _is_like(glob, op_name(op)))
        return op_name(op) if op is not None and is_match else None
    return subject.kernel if subject.kernel and _is_like(glob, subject.kernel) else None


def is_cause(condition: Condition, subject: Subject) -> bool:
    """Tell whether idle time is of the cause that a condition names.

    Args:
        condition: of idle time.
        subject: of idle time.
    """
    return condition.name is None or _is_like(condition.name, subject.cause or "")


def name_of(kind: Kind, subject: Subject) -> str | None:
    """Return what a condition could call a subject, so that a wrong name can be put right.

    Args:
        kind: what the condition is of.
        subject: of one side, at its finest.
    """
    names: dict[Kind, Hashable] = {
        Kind.LINE: f"{subject.file}:{subject.line}" if subject.file else None,
        Kind.MODULE: subject.module,
        Kind.OP: op_name(subject.aten_op) if subject.aten_op else None,
        Kind.KERNEL: subject.kernel,
        Kind.IDLE: subject.cause,
    }
    name = names.get(kind)
    return str(name) if name else None


def _line(glob: str, lines: tuple[int, int] | None, subject: Subject) -> str | None:
    if subject.file is None or subject.line is None:
        return None
    if lines is not None and not lines[0] <= subject.line <= lines[1]:
        return None
    parts, own = glob.split("/"), subject.file.split("/")
    ends = own[-len(parts) :]
    is_match = len(ends) == len(parts) and all(map(_is_like, parts, ends))
    return f"{subject.file}:{subject.line}" if is_match else None


def _module(glob: str, path: str | None) -> str | None:
    """Return the module that a glob means and a path lies in; it is the path's beginning."""
    if path is None:
        return None
    parts, own = glob.split("."), path.split(".")
    begins = own[: len(parts)]
    is_match = len(begins) == len(parts) and all(map(_is_like, parts, begins))
    return ".".join(begins) if is_match else None


def _is_like(glob: str, name: str) -> bool:
    return _pattern(glob).fullmatch(name) is not None


@lru_cache(maxsize=256)
def _pattern(glob: str) -> re.Pattern[str]:
    escaped = re.escape(glob).replace(r"\*", ".*").replace(r"\?", ".")
    return re.compile(escaped, re.DOTALL)
