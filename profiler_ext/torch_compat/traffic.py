"""Owns what the leaves of a kernel's schedule move through memory, buffer by buffer.

Source: ``torch/_inductor/dependencies.py``: a dependency knows its buffer and how many of its
bytes are touched, of which an indirect one (a gather) knows only the whole buffer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Set
from dataclasses import dataclass
from typing import Any

from profiler_ext.torch_compat.inductor import current_graph


@dataclass(frozen=True, slots=True)
class Access:
    """How a leaf touches a buffer.

    Attributes:
        buffer: the buffer's name.
        pattern: what tells this access from another of the same buffer.
        bytes: how many are touched at most.
        buffer_bytes: size of the whole buffer.
        users: names of the leaves that use what is written; ``None`` for a read.
    """

    buffer: str
    pattern: Hashable
    bytes: int
    buffer_bytes: int
    users: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one leaf moves.

    Attributes:
        name: the leaf's, in the schedule.
        iterations: how often its body runs at most.
        accesses: the buffers it touches.
    """

    name: str
    iterations: int
    accesses: tuple[Access, ...]


def traffic(leaf: Any) -> Traffic:
    """Return what a leaf of a schedule moves.

    Args:
        leaf: a ``SchedulerNode``.
    """
    reads, writes = _touched(leaf.read_writes.reads), _touched(leaf.read_writes.writes)
    every = (*reads, *writes)
    direct = (moved // _element_bytes(dep) for dep, moved in every if not dep.is_indirect())
    iterations = max(direct, default=0)
    read = [_access(dep, moved, iterations) for dep, moved in reads]
    written = [_access(dep, moved, iterations, _users(leaf, dep.name)) for dep, moved in writes]
    return Traffic(str(leaf.get_name()), iterations, (*read, *written))


def moved_bytes(leaves: Iterable[Traffic]) -> int:
    """Return the bytes that a kernel of these leaves loads and stores.

    What one leaf writes for another of the same kernel, and nobody else reads, stays in
    registers. Equal accesses are made once, and no buffer is moved more than whole.
    """
    every = list(leaves)
    inside = {leaf.name for leaf in every}
    accesses = {access for leaf in every for access in leaf.accesses}
    written = {access.buffer for access in accesses if access.users is not None}
    moved: dict[tuple[str, bool], int] = defaultdict(int)
    for access in accesses:
        if _passes_memory(access, written, inside):
            moved[access.buffer, access.users is None] += access.bytes
    limits = {access.buffer: access.buffer_bytes for access in accesses}
    return sum(min(amount, limits[buffer]) for (buffer, _), amount in moved.items())


def _passes_memory(access: Access, written: Set[str], inside: Set[str]) -> bool:
    if access.users is None:
        return access.buffer not in written
    return not access.users <= inside


def _touched(dependencies: Iterable[Any]) -> list[tuple[Any, int]]:
    """Return what touches data, with its bytes; a ``WeakDep`` only asks to run after another."""
    moving = (dep for dep in dependencies if type(dep).__name__ != "WeakDep")
    every = ((dep, int(dep.numbytes_hint())) for dep in moving)
    return [(dep, moved) for dep, moved in every if moved]


def _access(dep: Any, moved: int, iterations: int, users: frozenset[str] | None = None) -> Access:
    from torch._inductor.dependencies import StarDep

    if dep.is_indirect():  # it knows no more than its whole buffer
        return Access(
            str(dep.name), dep, min(moved, iterations * _element_bytes(dep)), moved, users
        )
    whole = int(StarDep(dep.name).numbytes_hint())
    return Access(str(dep.name), dep, moved, whole or moved, users)


def _element_bytes(dep: Any) -> int:
    return int(current_graph().get_dtype(dep.name).itemsize)


def _users(leaf: Any, name: str) -> frozenset[str]:
    """Who uses what a leaf writes; ``OUTPUT`` stands for whoever holds the memory afterwards."""
    users = {str(user.get_name()) for user in leaf.scheduler.name_to_buf[name].users}
    mutates = name in getattr(leaf.scheduler, "mutation_real_name", {})
    return frozenset(users | ({"OUTPUT"} if mutates or not users else set()))
