"""Owns which ops and kernels communicate: by the table of names, and by those that a user adds."""

from __future__ import annotations

import os
import re
from functools import lru_cache

from profiler_ext.kineto.communication_names import KERNELS, OPS, CommunicationNames

VARIABLE = "PROFILER_EXT_COMMUNICATION"
"""Names of communication that no row has, separated by ``;``; ``*`` stands for any text."""
MESSAGES = "sendrecv"
"""What a kernel does that sends or receives, as its name has it."""
_COALESCED = "coalesced"
_CACHE_SIZE = 1 << 14
_OF_OPS = [(re.compile(each.pattern), each) for each in OPS]
_OF_KERNELS = [(re.compile(each.pattern), each) for each in KERNELS]
_RESULT = re.compile(r"(?:static )?(?:void|bool|int) (?=[\w(])")
_MANGLED = re.compile(r"_ZN?K?(?=\d)")
_PIECE = re.compile(r"(\d{1,4})")


def is_communication(name: str) -> bool:
    """Say whether an op or a kernel communicates, as ``nccl:all_reduce`` and ``c10d::send``.

    Args:
        name: the name of an event.
    """
    return _communicates(name, os.environ.get(VARIABLE, ""))


@lru_cache(_CACHE_SIZE)
def _communicates(name: str, added: str) -> bool:
    if any(pattern.match(name) for pattern, _ in _OF_OPS) or _kernel(name) is not None:
        return True
    forms = (name, _function(name))
    return any(pattern.match(form) for pattern in _added(added) for form in forms)


def collective_name(kernel: str, around: str = "") -> str:
    """Return what a launch does: ``all_reduce``; ``""`` where nothing tells it.

    NCCL's all-to-all is a kernel of messages, ``SendRecv``: the range around its call tells it from
    those that a pipeline sends (``nccl:coalesced``, of ``batch_isend_irecv``).

    Args:
        kernel: the name of its kernel.
        around: the name of the range around its call; ``""`` where there is none.
    """
    operation, own = op_collective(around), _kernel_collective(kernel)
    if operation not in ("", _COALESCED):
        return operation
    return "" if own == MESSAGES and not operation else own


def _kernel_collective(name: str) -> str:
    candidates = _kernel(name)
    if candidates is None:
        return ""
    match, row = candidates
    operation = row.what or match.groupdict().get("what") or ""
    return operation.lower().replace("_", "")


def op_collective(name: str) -> str:
    """Return what the name of an op or range says that it does: ``all_reduce``; ``""`` if nothing.

    Args:
        name: the name of an event of the CPU.
    """
    candidates = (pattern.match(name) for pattern, _ in _OF_OPS)
    operation = (match.groupdict().get("what") for match in candidates if match is not None)
    return (next(operation, None) or "").strip("_")


def _kernel(name: str) -> tuple[re.Match[str], CommunicationNames] | None:
    function = _function(name)
    for pattern, row in _OF_KERNELS:
        if (match := pattern.match(function)) is not None:
            return match, row
    return None


def _function(name: str) -> str:
    """Return a kernel's name from its namespaces on; of a mangled one no more than these."""
    if (begins := _MANGLED.match(name)) is None:
        return name[result.end() :] if (result := _RESULT.match(name)) else name
    parts, at = [], begins.end()
    while (size := _PIECE.match(name, at)) is not None:
        at = size.end() + int(size[1])
        parts.append(name[size.end() : at])
    return "::".join("(anonymous namespace)" if p.startswith("_GLOBAL__N") else p for p in parts)


@lru_cache(8)
def _added(names: str) -> tuple[re.Pattern[str], ...]:
    """Return what matches the names that a user added: as ``--kernel`` reads one."""
    names_wanted = (each.strip() for each in names.split(";"))
    return tuple(map(_pattern_of, filter(None, names_wanted)))


def _pattern_of(name: str) -> re.Pattern[str]:
    any_text = name if "*" in name else f"*{name}*"
    return re.compile(".*".join(map(re.escape, any_text.split("*"))) + r"\Z", re.DOTALL)
