"""Owns what is known of earlier stages of a compile until its last graph is compiled.

A backward may be compiled long after its forward, when it first runs, and compiled autograd copies
one as often as it likes. So what is known of a compile is kept while torch keeps the backward half
of it, and that of the last compiles in any case.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from profiler_ext.capture.lineage.joint_graph import Fingerprint, JointGraph
from profiler_ext.isolation.locks import Lock
from profiler_ext.recall.dynamo_graph import DynamoGraph
from profiler_ext.torch_compat import process

_ALWAYS_KEPT = 64
"""More than the compiles that are under way at one time, in all threads."""


@dataclass(slots=True)
class _Compile:
    """What is known of one compile.

    Attributes:
        dynamo: its Dynamo graph.
        part: the part of it that is compiled by itself now; ``None`` where that is all of it.
        number: that graph's number in this process.
        joints: its joint graphs.
        parts: for each of them the part of the Dynamo graph that was traced to it.
        bypass: why torch bypassed AOTAutograd's cache in it.
        halves: what torch keeps of its backward halves.
    """

    dynamo: DynamoGraph | None = None
    part: DynamoGraph | None = None
    number: int | None = None
    joints: list[JointGraph] = field(default_factory=list)
    parts: list[DynamoGraph | None] = field(default_factory=list)
    bypass: str | None = None
    halves: list[weakref.ref[Any]] = field(default_factory=list)

    @property
    def has_live_backward(self) -> bool:
        """Whether a backward of it may be compiled yet."""
        return any(half() is not None for half in self.halves)


class EarlierStages:
    """The compiles of which later graphs may come; after a reset of Dynamo ids are given again."""

    def __init__(self) -> None:
        """Start with nothing known."""
        self._lock = Lock()
        self._by_compile_id: dict[str, list[_Compile]] = {}
        self._last: list[tuple[str, _Compile]] = []
        self._numbers = itertools.count()

    def keep_dynamo(self, graph: DynamoGraph) -> None:
        """Keep the Dynamo graph of the compile in force."""
        if (compile_id := process.current_compile_id()) is not None:
            self._begin(compile_id, _Compile(graph, number=next(self._numbers)))

    @property
    def dynamo(self) -> DynamoGraph | None:
        """The Dynamo graph of the compile in force."""
        return None if (now := self._current_compile()) is None else now.dynamo

    def begin_part(self, describe: Callable[[DynamoGraph], DynamoGraph | None]) -> None:
        """Have the compile of a part of the Dynamo graph begin, or that of all of it.

        Args:
            describe: describes the part, ``None`` where it is all.
        """
        if (now := self._current_compile()) is not None and now.dynamo is not None:
            now.part = describe(now.dynamo)

    def traced_from(self, joint: JointGraph | None = None) -> DynamoGraph | None:
        """Return the Dynamo graph, or its part, that a graph of the compile in force is of.

        Args:
            joint: the joint graph that the graph was cut from; by default what is compiled now.
        """
        if (now := self._current_compile()) is None:
            return None
        pairs = zip(now.joints, now.parts, strict=False)
        part = next((part for known, part in pairs if known is joint), now.part)
        return part or now.dynamo

    @property
    def dynamo_number(self) -> int | None:
        """The number of that Dynamo graph in this process."""
        return None if (now := self._current_compile()) is None else now.number

    def keep_autograd_bypass(self, reason: str) -> None:
        """Keep why torch bypassed AOTAutograd's cache in the compile in force."""
        if (now := self._current_or_new()) is not None:
            now.bypass = reason

    @property
    def autograd_bypass(self) -> str | None:
        """Why torch bypassed AOTAutograd's cache in the compile in force."""
        reasons = (each.bypass for each in self._latest_first() if each.bypass is not None)
        return next(reasons, None)

    def keep_joint(self, joint: JointGraph) -> None:
        """Keep a joint graph until its halves are compiled."""
        if (now := self._current_or_new()) is not None:
            now.parts.append(now.part)
            now.joints.append(joint)

    def keep_half(self, half: weakref.ref[Any]) -> None:
        """Keep what is known of the compile in force while torch keeps a backward half of it."""
        if (now := self._current_or_new()) is not None:
            now.halves.append(half)

    def joint_seen_before(self, fingerprint: Fingerprint) -> JointGraph | None:
        """Return a graph of this compile on which passes ran before, as it was after them."""
        return next((j for j in self._joints() if j.fingerprint == fingerprint), None)

    def parent_joint_of(self, fingerprint: Fingerprint) -> JointGraph | None:
        """Return the joint graph of this compile that a graph is a part of."""
        return next((joint for joint in self._joints() if joint.contains_graph(fingerprint)), None)

    def joint_of(self, fingerprint: Fingerprint) -> JointGraph | None:
        """Return the joint graph of this compile that shares most nodes with a half of it.

        After a reset of Dynamo a compile has the id of an older one: the last one counts.
        """
        best = max(self._joints(), key=lambda joint: joint.shared(fingerprint), default=None)
        return best if best is not None and best.shared(fingerprint) else None

    def _joints(self) -> Iterator[JointGraph]:
        """The joint graphs of this compile, the last one first."""
        for each in self._latest_first():
            yield from reversed(each.joints)

    def _latest_first(self) -> Iterable[_Compile]:
        return reversed(self._by_compile_id.get(process.current_compile_id() or "", ()))

    def _current_compile(self) -> _Compile | None:
        return next(iter(self._latest_first()), None)

    def _current_or_new(self) -> _Compile | None:
        compile_id = process.current_compile_id()
        if compile_id is not None and not self._by_compile_id.get(compile_id):
            self._begin(compile_id, _Compile())
        return self._current_compile()

    def _begin(self, compile_id: str, compiled: _Compile) -> None:
        with self._lock.held():
            self._by_compile_id[compile_id] = [*self._by_compile_id.get(compile_id, ()), compiled]
            self._last.append((compile_id, compiled))
            if len(self._last) > 2 * _ALWAYS_KEPT:
                self._drop_finished()

    def _drop_finished(self) -> None:
        """Forget the compiles that are over; looked for now and then."""
        self._last = self._last[-_ALWAYS_KEPT:]
        kept = {id(each) for _, each in self._last}
        for compile_id, compiles in tuple(self._by_compile_id.items()):
            live = [each for each in compiles if id(each) in kept or each.has_live_backward]
            if live:
                self._by_compile_id[compile_id] = live
            else:
                del self._by_compile_id[compile_id]
