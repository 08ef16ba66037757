"""Owns what is learnt of library calls: the kernels that each ran, and which ones begin a call.

A library has other kernels for other sizes, but a product that is split still ends in the kernel
that adds up its parts, and that never begins a call. A memset may be of what comes next.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from profiler_ext.kineto import classify
from profiler_ext.records import GraphInstance

_KernelNames = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KernelFamilies:
    """How calls of libraries begin and go on.

    Attributes:
        followers: names that were seen in a call, and never first.
        plain_ops: operators whose calls all began once: one kernel, and its followers.
    """

    followers: frozenset[str] = frozenset()
    plain_ops: frozenset[str] = frozenset()

    def parts(self, names: Sequence[str]) -> list[int] | None:
        """Return for each name the part that it is of, from 0; ``None`` where that is open.

        It is where the first one follows, and where a memset may be of either side.
        """
        begins = [name not in self.followers for name in names]
        if not any(begins[:1]) or any(map(classify.is_memory_work, names)):
            return None
        return [sum(begins[: at + 1]) - 1 for at in range(len(begins))]


@dataclass(frozen=True, slots=True)
class KnownKernels:
    """Which device events library calls launch, from other calls of their graph.

    Attributes:
        kernels: their names in order, by index of the call site.
        elsewhere: the sites of which only another run saw it.
        is_reselected: where the call ran something else than was learnt, the libraries chose anew,
            and nothing was lost: another call ran the very same, say.
        is_contradicted: other calls ran something else, and none the same.
        families: how the calls of libraries begin and go on in this session.
    """

    kernels: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    from_store: frozenset[int] = frozenset()
    is_reselected: bool = False
    is_contradicted: bool = False
    families: KernelFamilies = field(default_factory=KernelFamilies)


def kernel_families(graphs: Iterable[GraphInstance]) -> KernelFamilies:
    """Learn from all that the calls of libraries were seen to launch.

    Returns:
        Which names only go on with a call, and of which operators each call began once.
    """
    ran: dict[str | None, set[_KernelNames]] = defaultdict(set)
    for graph in graphs:
        sites = graph.call_sites
        for at, names in (*graph.stored_kernels, *graph.library_kernels):
            if names and at < len(sites):
                ran[sites[at].op].add(names)
    every = [names for own in ran.values() for names in own]
    later = {name for names in every for name in names[1:] if not classify.is_memory_work(name)}
    followers = later - {names[0] for names in every}
    plain = [op for op, own in ran.items() if all(followers.issuperset(n[1:]) for n in own)]
    return KernelFamilies(frozenset(followers), frozenset(op for op in plain if op))
