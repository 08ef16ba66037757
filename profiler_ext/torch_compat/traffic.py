"""What the leaves of a kernel's schedule move through memory, buffer by buffer.

Source: ``torch/_inductor/dependencies.py``: a dependency knows its buffer and how many of its bytes
are touched, of which an indirect one (a gather) knows only the whole buffer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from profiler_ext.torch_compat import inductor, private
from profiler_ext.torch_compat.names import kernel_names


@dataclass(frozen=True, slots=True)
class Access:
    """One access of a leaf to a buffer."""

    buffer: str
    pattern: Hashable  # tells accesses to one buffer apart
    bytes: int  # at most
    buffer_bytes: int
    users: frozenset[str] | None = None  # the leaves that use what is written; ``None`` for a read


@dataclass(frozen=True, slots=True)
class Traffic:
    """The accesses of one leaf."""

    name: str
    iterations: int  # of its body, at most
    accesses: tuple[Access, ...]

    def writes(self) -> tuple[frozenset[str], ...]:
        """Return the users of each buffer that it writes."""
        return tuple(access.users for access in self.accesses if access.users is not None)


def traffic(leaf: Any) -> Traffic | None:
    """Return the traffic of a leaf, if this torch has all names for it."""
    if private.unavailable(kernel_names.TRAFFIC):
        return None
    touched = kernel_names.READ_WRITES.of(leaf)
    reads = _touched(kernel_names.READS.of(touched))
    writes = _touched(kernel_names.WRITES.of(touched))
    every = (*reads, *writes)
    direct = (moved // _element_bytes(dep) for dep, moved in every if not _is_indirect(dep))
    iterations = max(direct, default=0)
    read = [_access(dep, moved, iterations) for dep, moved in reads]
    written = [
        _access(dep, moved, iterations, _users(leaf, dep_name(dep))) for dep, moved in writes
    ]
    return Traffic(str(kernel_names.LEAF_NAME.of(leaf)()), iterations, (*read, *written))


def moved_bytes(leaves: Iterable[Traffic | None]) -> int | None:
    """Return the bytes that a kernel of these leaves loads and stores, if all are known."""
    # A value that only leaves of this kernel use stays in registers. Equal accesses happen once,
    # and no buffer is moved more than whole.
    reported = list(leaves)
    every = [leaf for leaf in reported if leaf is not None]
    if len(every) < len(reported):
        return None
    inside = {leaf.name for leaf in every}
    accesses = {access for leaf in every for access in leaf.accesses}
    written = {access.buffer for access in accesses if access.users is not None}
    moved: dict[tuple[str, bool], int] = defaultdict(int)
    for access in accesses:
        is_read = access.users is None and access.buffer not in written
        if is_read or (access.users is not None and not access.users <= inside):
            moved[access.buffer, access.users is None] += access.bytes
    limits = {access.buffer: access.buffer_bytes for access in accesses}
    return sum(min(amount, limits[buffer]) for (buffer, _), amount in moved.items())


def storing(leaves: Iterable[Traffic | None]) -> tuple[bool, ...] | None:
    """Tell for each leaf of a kernel whether it stores what it computes, if all are known."""
    reported = list(leaves)
    every = [leaf for leaf in reported if leaf is not None and leaf.writes()]
    if len(every) < len(reported):
        return None
    inside = {leaf.name for leaf in every}
    return tuple(any(not write <= inside for write in leaf.writes()) for leaf in every)


def _touched(dependencies: Iterable[Any]) -> list[tuple[Any, int]]:
    """Return the accesses with their bytes; a ``WeakDep`` only orders."""
    weak = kernel_names.WEAK_DEP.get()
    moving = (dep for dep in dependencies if not isinstance(dep, weak))
    every = ((dep, int(kernel_names.NUMBYTES_HINT.of(dep)())) for dep in moving)
    return [(dep, moved) for dep, moved in every if moved]


def _access(dep: Any, moved: int, iterations: int, users: frozenset[str] | None = None) -> Access:
    name = dep_name(dep)
    if _is_indirect(dep):  # a gather knows only its whole buffer
        return Access(name, dep, min(moved, iterations * _element_bytes(dep)), moved, users)
    buffer_bytes = int(kernel_names.NUMBYTES_HINT.of(kernel_names.STAR_DEP.get()(name))())
    return Access(name, dep, moved, buffer_bytes or moved, users)


def dep_name(dep: Any) -> str:
    """Return the name of the buffer that a dependency is on."""
    return str(kernel_names.DEP_NAME.of(dep))


def _is_indirect(dep: Any) -> bool:
    return bool(kernel_names.IS_INDIRECT.of(dep)())


def _element_bytes(dep: Any) -> int:
    dtype: torch.dtype = kernel_names.GET_DTYPE.of(inductor.current_graph())(dep_name(dep))
    return dtype.itemsize


def _users(leaf: Any, name: str) -> frozenset[str]:
    """The leaves that use what a leaf writes, and ``OUTPUT`` if the memory outlives the kernel.

    Source: ``torch/_inductor/scheduler.py``, ``can_buffer_be_removed_through_fusion``: a weak user
    is only an ordering.
    """
    scheduler = kernel_names.LEAF_SCHEDULER.of(leaf)
    every = kernel_names.BUFFER_USERS.of(kernel_names.NAME_TO_BUF.of(scheduler)[name])
    reading = (user for user in every if not kernel_names.USER_IS_WEAK.of(user))
    users = {str(kernel_names.USER_NAME.of(user)()) for user in reading}
    mutates = name in kernel_names.MUTATION_REAL_NAME.of(scheduler)
    is_mutated = name in kernel_names.MUTATION_RENAMES.of(scheduler)
    return frozenset(users | ({"OUTPUT"} if mutates or is_mutated or not users else set()))
