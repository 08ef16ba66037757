"""Parses the conditions of a gate, and matches their names.

    condition = [ "each" ] subject limit { "and" limit }
    subject   = "total" | "device" | "idle" [ CAUSE ] | "compile" | "memory" | "session_size"
              | "phase" PHASE
              | ( "line" FILE [ ":" FIRST [ "-" LAST ] ] | "module" PATH | "op" NAME
                | "kernel" NAME ) [ PHASE ]
    limit     = ">" "+" NUMBER UNIT | "<" "-" NUMBER UNIT
    UNIT      = "%" | "ns" | "us" | "ms" | "s" | "B" | "KB" | "MB" | "GB" | "KiB" | "MiB" | "GiB"

Names with spaces or ``<`` are quoted (``"``). See ``docs/gate.md``.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from profiler_ext.comparison import matching, records
from profiler_ext.errors import UsageError
from profiler_ext.records.vocabulary import Phase

_TOKEN = re.compile(r'"[^"]*"|[<>]|[^\s<>"]+|"')
_LIMIT = re.compile(r"([+-])(\d+(?:\.\d+)?|\.\d+)(%|[A-Za-z]+)")
_LINES = re.compile(r"(.+?)(?::(\d+)(?:-(\d+))?)?")


class Kind(StrEnum):
    """What a condition is of."""

    TOTAL = "total"
    DEVICE = "device"
    IDLE = "idle"
    PHASE = "phase"
    LINE = "line"
    MODULE = "module"
    OP = "op"
    KERNEL = "kernel"
    COMPILE = "compile"
    MEMORY = "memory"
    SESSION_SIZE = "session_size"


class Unit(StrEnum):
    """The unit of a limit."""

    PART = "part"
    NS = "ns"
    BYTES = "bytes"


NAMED = (Kind.LINE, Kind.MODULE, Kind.OP, Kind.KERNEL)  # may be judged one by one, with ``each``
_IN_BYTES = (Kind.MEMORY, Kind.SESSION_SIZE)
_EXAMPLES = {
    Kind.LINE: "train.py:36",
    Kind.MODULE: "layers.*.mlp",
    Kind.OP: "addmm",
    Kind.KERNEL: "triton_red_*",
}
UNITS = {
    "%": (Unit.PART, 0.01),
    "ns": (Unit.NS, 1.0),
    "us": (Unit.NS, 1e3),
    "ms": (Unit.NS, 1e6),
    "s": (Unit.NS, 1e9),
    "B": (Unit.BYTES, 1.0),
    "KB": (Unit.BYTES, 1e3),
    "MB": (Unit.BYTES, 1e6),
    "GB": (Unit.BYTES, 1e9),
    "KiB": (Unit.BYTES, 1024.0),
    "MiB": (Unit.BYTES, 1024.0**2),
    "GiB": (Unit.BYTES, 1024.0**3),
}


@dataclass(frozen=True, slots=True)
class Limit:
    """How large a change may be."""

    sign: int  # 1 for growing, -1 for shrinking
    amount: float  # never below zero
    unit: Unit


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that fails a comparison."""

    text: str  # as the user wrote it
    kind: Kind
    limits: tuple[Limit, ...]  # all must be exceeded; they have one sign
    name: str | None = None  # with ``*`` and ``?``; a cause of idle time
    lines: tuple[int, int] | None = None  # first and last line; of lines alone
    phase: Phase | None = None
    is_each: bool = False  # each match is judged by itself, not their sum


def parse(text: str) -> Condition:
    """Parse a condition; its error names what was expected, and at which character."""
    return _Parser(text).condition()


class _Parser:
    """Reads one condition token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_TOKEN.finditer(text))
        self._at = 0

    def condition(self) -> Condition:
        is_each = self._accept("each")
        kind = Kind(self._one_of("what it is of", tuple(Kind)))
        if is_each and kind not in NAMED:
            self._at -= 1
            raise self._error(f"one of {', '.join(NAMED)} after each")
        name, lines = self._name(kind)
        phase = self._phase(kind)
        limits = [self._limit(kind, None)]
        while self._accept("and"):
            limits.append(self._limit(kind, limits[0]))
        if self._peek() is not None:
            raise self._error("and, or the end")
        return Condition(self._text, kind, tuple(limits), name, lines, phase, is_each)

    def _name(self, kind: Kind) -> tuple[str | None, tuple[int, int] | None]:
        if kind is Kind.IDLE and self._peek() not in (None, "<", ">"):
            return self._accept_name("a cause"), None
        if kind not in NAMED:
            return None, None
        name = self._accept_name(f"the {kind} that is meant, such as {_EXAMPLES[kind]}")
        return self._with_lines(name) if kind is Kind.LINE else (name, None)

    def _with_lines(self, name: str) -> tuple[str, tuple[int, int] | None]:
        match = _LINES.fullmatch(name)
        assert match is not None
        file, first, last = match.groups()
        if first is None:
            return file, None
        lines = int(first), int(last or first)
        if not 0 < lines[0] <= lines[1]:
            self._at -= 1
            raise self._error("lines in order, counted from 1, such as train.py:30-40")
        return file, lines

    def _phase(self, kind: Kind) -> Phase | None:
        if kind is Kind.PHASE:
            return Phase(self._one_of("a phase", tuple(Phase)))
        if kind in NAMED and self._peek() in tuple(Phase):
            return Phase(self._one_of("a phase", tuple(Phase)))
        return None

    def _limit(self, kind: Kind, before: Limit | None) -> Limit:
        if (word := self._peek()) not in ("<", ">"):
            phases = f"a phase ({', '.join(Phase)}), " if kind in NAMED and not before else ""
            raise self._error(f"{phases}> or <")
        sign = 1 if word == ">" else -1
        if before is not None and before.sign != sign:
            raise self._error(f"{'>' if before.sign > 0 else '<'} as in the first limit")
        self._at += 1
        own = (Unit.PART, Unit.BYTES if kind in _IN_BYTES else Unit.NS)
        units = [name for name, (unit, _) in UNITS.items() if unit in own]
        shape = f"{'+' if sign > 0 else '-'}NUMBER with {', '.join(units)}, such as "
        shape += f"{'+' if sign > 0 else '-'}5%"
        match = _LIMIT.fullmatch(self._peek() or "")
        if not match or match[3] not in units or match[1] != ("+" if sign > 0 else "-"):
            raise self._error(shape)
        self._at += 1
        unit, factor = UNITS[match[3]]
        return Limit(sign, float(match[2]) * factor, unit)

    def _peek(self) -> str | None:
        return self._tokens[self._at].group() if self._at < len(self._tokens) else None

    def _accept(self, word: str) -> bool:
        is_there = self._peek() == word
        self._at += is_there
        return is_there

    def _accept_name(self, what: str) -> str:
        word = self._peek()
        name = word.strip('"') if word is not None and word not in ("<", ">") else ""
        if not name:
            raise self._error(what)
        self._at += 1
        return name

    def _one_of(self, what: str, words: Sequence[str]) -> str:
        word = self._peek()
        if word is None or word not in words:
            raise self._error(f"{what} ({', '.join(words)})")
        self._at += 1
        return word

    def _error(self, expected: str) -> UsageError:
        word = self._peek()
        where = "at its end" if word is None else f"at {word!r}"
        column = len(self._text) if word is None else self._tokens[self._at].start()
        return UsageError(
            f"the condition {self._text!r} is not understood {where} (character {column + 1}): "
            f"expected {expected}"
        )


def matched_name(condition: Condition, subject: records.Subject) -> str | None:
    """Return the name of what a condition matches in a subject; ``None`` for no match."""
    glob = condition.name or ""
    if condition.kind is Kind.LINE:
        return _line(glob, condition.lines, subject)
    if condition.kind is Kind.MODULE:
        return _module(glob, subject.module)
    if condition.kind is Kind.OP:
        op = subject.aten_op
        is_match = op is not None and (_is_like(glob, op) or _is_like(glob, matching.op_name(op)))
        return matching.op_name(op) if op is not None and is_match else None
    return subject.kernel if subject.kernel and _is_like(glob, subject.kernel) else None


def is_cause(condition: Condition, subject: records.Subject) -> bool:
    """Return whether idle time is of a condition's cause."""
    return condition.name is None or _is_like(condition.name, subject.cause or "")


def name_of(kind: Kind, subject: records.Subject) -> str | None:
    """Return a subject's name as a condition gives it, to suggest corrections."""
    names: dict[Kind, Hashable] = {
        Kind.LINE: f"{subject.file}:{subject.line}" if subject.file else None,
        Kind.MODULE: subject.module,
        Kind.OP: matching.op_name(subject.aten_op) if subject.aten_op else None,
        Kind.KERNEL: subject.kernel,
        Kind.IDLE: subject.cause,
    }
    name = names.get(kind)
    return str(name) if name else None


def _line(glob: str, lines: tuple[int, int] | None, subject: records.Subject) -> str | None:
    if subject.file is None or subject.line is None:
        return None
    if lines is not None and not lines[0] <= subject.line <= lines[1]:
        return None
    parts, own = glob.split("/"), subject.file.split("/")
    ends = own[-len(parts) :]
    is_match = len(ends) == len(parts) and all(map(_is_like, parts, ends))
    return f"{subject.file}:{subject.line}" if is_match else None


def _module(glob: str, path: str | None) -> str | None:
    """Return the beginning of a path that a glob matches."""
    if path is None:
        return None
    parts, own = glob.split("."), path.split(".")
    begins = own[: len(parts)]
    is_match = len(begins) == len(parts) and all(map(_is_like, parts, begins))
    return ".".join(begins) if is_match else None


@lru_cache(maxsize=4096)
def _is_like(glob: str, name: str) -> bool:
    escaped = re.escape(glob).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(escaped, name, re.DOTALL) is not None
