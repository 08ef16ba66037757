"""What the leaves of a kernel's schedule move through memory, buffer by buffer.

Source: ``torch/_inductor/dependencies.py``: a dependency knows its buffer and how many of its
bytes are touched, of which an indirect one (a gather) knows only the whole buffer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Set
from dataclasses import dataclass
from typing import Any

import torch

from profiler_ext.torch_compat import private
from profiler_ext.torch_compat.inductor import current_graph
from profiler_ext.torch_compat.names import kernel_names


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

    def writes(self) -> tuple[frozenset[str], ...]:
        """Return the users of each buffer that it writes."""
        return tuple(access.users for access in self.accesses if access.users is not None)


def traffic(leaf: Any) -> Traffic | None:
    """Return what a leaf of a schedule moves, ``None`` in a torch that lacks a name for it."""
    if private.unavailable(kernel_names.TRAFFIC):
        return None
    touched = kernel_names.READ_WRITES.of(leaf)
    reads, writes = (
        _touched(kernel_names.READS.of(touched)),
        _touched(kernel_names.WRITES.of(touched)),
    )
    every = (*reads, *writes)
    direct = (moved // _element_bytes(dep) for dep, moved in every if not _is_indirect(dep))
    iterations = max(direct, default=0)
    read = [_access(dep, moved, iterations) for dep, moved in reads]
    written = [_access(dep, moved, iterations, _users(leaf, _name(dep))) for dep, moved in writes]
    return Traffic(str(kernel_names.LEAF_NAME.of(leaf)()), iterations, (*read, *written))


def moved_bytes(leaves: Iterable[Traffic | None]) -> int | None:
    """Return the bytes that a kernel of these leaves loads and stores, if all tell what they move.

    What one leaf writes for another of the same kernel, and nobody else reads, stays in
    registers. Equal accesses are made once, and no buffer is moved more than whole.
    """
    reported = list(leaves)
    every = [leaf for leaf in reported if leaf is not None]
    if len(every) < len(reported):
        return None
    inside = {leaf.name for leaf in every}
    accesses = {access for leaf in every for access in leaf.accesses}
    written = {access.buffer for access in accesses if access.users is not None}
    moved: dict[tuple[str, bool], int] = defaultdict(int)
    for access in accesses:
        if _passes_memory(access, written, inside):
            moved[access.buffer, access.users is None] += access.bytes
    limits = {access.buffer: access.buffer_bytes for access in accesses}
    return sum(min(amount, limits[buffer]) for (buffer, _), amount in moved.items())


def storing(leaves: Iterable[Traffic | None]) -> tuple[bool, ...] | None:
    """Tell of each leaf of a kernel whether it stores what it computes.

    Returns:
        One for each leaf, in their order; ``None`` where any does not tell what it writes.
    """
    reported = list(leaves)
    every = [leaf for leaf in reported if leaf is not None and leaf.writes()]
    if len(every) < len(reported):
        return None
    inside = {leaf.name for leaf in every}
    return tuple(any(not write <= inside for write in leaf.writes()) for leaf in every)


def _passes_memory(access: Access, written: Set[str], inside: Set[str]) -> bool:
    if access.users is None:
        return access.buffer not in written
    return not access.users <= inside


def _touched(dependencies: Iterable[Any]) -> list[tuple[Any, int]]:
    """Return what touches data, with its bytes; a ``WeakDep`` only asks to run after another."""
    weak = kernel_names.WEAK_DEP.get()
    moving = (dep for dep in dependencies if not isinstance(dep, weak))
    every = ((dep, int(kernel_names.NUMBYTES_HINT.of(dep)())) for dep in moving)
    return [(dep, moved) for dep, moved in every if moved]


def _access(dep: Any, moved: int, iterations: int, users: frozenset[str] | None = None) -> Access:
    name = _name(dep)
    if _is_indirect(dep):  # it knows no more than its whole buffer
        return Access(name, dep, min(moved, iterations * _element_bytes(dep)), moved, users)
    buffer_bytes = int(kernel_names.NUMBYTES_HINT.of(kernel_names.STAR_DEP.get()(name))())
    return Access(name, dep, moved, buffer_bytes or moved, users)


def _name(dep: Any) -> str:
    return str(kernel_names.DEP_NAME.of(dep))


def _is_indirect(dep: Any) -> bool:
    return bool(kernel_names.IS_INDIRECT.of(dep)())


def _element_bytes(dep: Any) -> int:
    dtype: torch.dtype = kernel_names.GET_DTYPE.of(current_graph())(_name(dep))
    return dtype.itemsize


def _users(leaf: Any, name: str) -> frozenset[str]:
    """Who uses what a leaf writes; ``OUTPUT`` stands for whoever holds the memory afterwards.

    Source: ``torch/_inductor/scheduler.py``, ``can_buffer_be_removed_through_fusion``: a weak user
    only asks to run after the leaf.
    """
    scheduler = kernel_names.LEAF_SCHEDULER.of(leaf)
    every = kernel_names.BUFFER_USERS.of(kernel_names.NAME_TO_BUF.of(scheduler)[name])
    reading = (user for user in every if not kernel_names.USER_IS_WEAK.of(user))
    users = {str(kernel_names.USER_NAME.of(user)()) for user in reading}
    mutates = name in kernel_names.MUTATION_REAL_NAME.of(scheduler)
    is_mutated = name in kernel_names.MUTATION_RENAMES.of(scheduler)
    return frozenset(users | ({"OUTPUT"} if mutates or is_mutated or not users else set()))
