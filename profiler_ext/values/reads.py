"""Which results of a step something reads, and which part of them: what a compiler would leave out.

An op is needed where what it returns is written to memory that the step did not make, leaves the
device, is read by an op that is needed, or by none such and is alive after the step's last op, as
what a step returns is. Of a result of which only views are read, or rows by their number, so much
is needed; an op on each element needs as much of what it is given as of what it returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from profiler_ext.values.fingerprints import is_plain

_KNOWN = ("aten::", "prims::")  # what else may read or write anything
_PICKS = frozenset(
    {"aten::index", "aten::index_select", "aten::gather", "aten::embedding", "aten::take"}
)
_LOOKED_AT_PER_OP = 16  # a training step may have thousands of activations alive
_Region = tuple[Any, ...]


class _Read(NamedTuple):
    """What an op reads of the memory that another made."""

    made: int
    region: _Region
    part: float
    is_whole_result: bool  # an element of the result for each that is read


@dataclass(slots=True)
class _Made:
    """Memory that an op made."""

    elements: int
    storage: StorageWeakRef
    read: dict[_Region, float] = field(default_factory=dict)
    is_kept: bool = False  # alive after the last op

    @property
    def is_freed(self) -> bool:
        """Whether its memory is free by now."""
        return bool(self.storage.expired())  # type: ignore[no-untyped-call]

    @property
    def needed(self) -> float:
        """The part of it that is needed, at most; all, if it may be what the step returns."""
        if not self.is_freed or (self.is_kept and not any(self.read.values())):
            return 1.0
        return min(sum(self.read.values()), 1.0)


@dataclass(slots=True)
class _Op:
    made: list[int]
    reads: list[_Read]
    is_needed: bool


class Reads:
    """The ops of a step, in order, and what each reads of the others' results."""

    def __init__(self) -> None:
        self._ops: list[_Op] = []
        self._made: list[_Made] = []
        self._owners: dict[int, int] = {}  # by the address of the memory
        self._alive: list[_Made] = []  # when it was last looked at, and what was made since
        self._ops_until_look = 0

    def note(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
        """Keep what an op reads and makes; return its number."""
        given = list(tensors_of((args, tuple(kwargs.values()))))
        results, known = list(tensors_of((result,))), set(map(memory_of, given))
        kept = [each for each in results if memory_of(each) not in known]
        changed = {memory_of(each) for each in tensors_of(_changed(op, args, kwargs))}
        owners = [self._owners.get(each, -1) for each in changed]
        is_needed = (
            not results
            or not name_of(op).startswith(_KNOWN)
            or min(owners, default=0) < 0
            or len({each.device for each in (*given, *results)}) > 1
        )
        read = [each for each in given if is_needed or memory_of(each) not in changed]
        reads = [self._read(op, each, kept) for each in read if is_needed or kept or changed]
        self._look_what_is_alive()
        made = [*(each for each in owners if each >= 0), *map(self._make, kept)]
        self._ops.append(_Op(made, [each for each in reads if each is not None], is_needed))
        return len(self._ops) - 1

    def needed(self) -> list[float]:
        """Return which part of each op's results is needed, at most."""
        for each in self._alive:
            each.is_kept = True
        result = [0.0] * len(self._ops)
        for at in range(len(self._ops) - 1, -1, -1):
            op = self._ops[at]
            parts = (self._made[each].needed for each in op.made)
            needed = 1.0 if op.is_needed or not op.made else max(parts)
            result[at] = needed
            for read in op.reads if needed else ():
                part = read.part * (needed if read.is_whole_result else 1.0)
                known = self._made[read.made].read
                known[read.region] = max(known.get(read.region, 0.0), part)
        return result

    def _look_what_is_alive(self) -> None:
        """Forget what is freed: after each op where little is alive, as at the end of a step."""
        self._ops_until_look -= 1
        if self._ops_until_look <= 0:
            self._alive = [each for each in self._alive if not each.is_freed]
            self._ops_until_look = len(self._alive) // _LOOKED_AT_PER_OP

    def _make(self, tensor: torch.Tensor) -> int:
        storage = tensor.untyped_storage()
        elements = storage.nbytes() // tensor.itemsize
        self._made.append(_Made(elements, _reference(storage)))
        self._owners[storage.data_ptr()] = len(self._made) - 1
        self._alive.append(self._made[-1])
        return len(self._made) - 1

    def _read(self, op: Any, given: torch.Tensor, kept: list[torch.Tensor]) -> _Read | None:
        owner = self._owners.get(memory_of(given))
        if owner is None:
            return None
        whole = self._made[owner].elements
        returned = sum(each.numel() for each in kept)
        elements = min(given.numel(), whole)
        region: _Region = (given.storage_offset(), given.shape, given.stride())
        if name_of(op) in _PICKS and returned < elements:
            elements, region = returned, (len(self._ops),)
        is_pointwise = torch.Tag.pointwise in getattr(op, "tags", ())
        is_one_each = is_pointwise and returned == given.numel()
        return _Read(owner, region, elements / max(whole, 1), is_one_each)


def _reference(storage: torch.UntypedStorage) -> StorageWeakRef:
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


def _changed(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
    """Yield the arguments that an op writes to."""
    schema = getattr(op, "_schema", None)
    for at, each in enumerate(() if schema is None else schema.arguments):
        if each.alias_info is not None and each.alias_info.is_write:
            yield args[at] if at < len(args) else kwargs.get(each.name)


def name_of(op: Any) -> str:
    """Return the name that the profiler has: ``aten::addmm``."""
    schema = getattr(op, "_schema", None)
    return str(op) if schema is None else str(schema.name)


def memory_of(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's memory."""
    return tensor.untyped_storage().data_ptr()


def tensors_of(things: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors of arguments, and of lists of them."""
    for each in things:
        if isinstance(each, tuple | list):
            yield from tensors_of(each)
        elif is_plain(each):
            yield each
