"""The records of what was measured inside kernels: which of the fused lines takes the time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from profiler_ext.records.vocabulary import Term


class InsideRoute(Term, page="words.md", title="route inside a kernel", columns=()):
    """How the time inside a kernel was measured."""

    KNOCK_OUT = (
        "knock_out",
        "with each line taken out",
        "is by how much shorter the kernel takes alone, on arguments as in the step, with the work "
        "of a line taken out",
    )
    SAMPLES = (
        "samples",
        "by samples",
        "is by the samples that the device took of the kernel's instructions in the step",
    )


@dataclass(frozen=True, slots=True)
class KernelPart:
    """Lines of a kernel that compute the same FX nodes, and what they take."""

    nodes: tuple[str, ...]  # at the first of the kernel's call sites
    lines: tuple[int, ...]  # in the kernel's text, from 1
    time_ns: int = 0  # of one launch; the parts add up to ``MeasuredKernel.step_ns``
    # How much shorter the kernel takes alone without these lines, and its 95% interval
    saved_ns: float | None = None
    saved_low_ns: float | None = None
    saved_high_ns: float | None = None
    is_store: bool = False  # the lines write what the nodes computed; others read and compute
    is_load: bool = False  # the lines load what the nodes' op passes on where it is taken out
    reason: str = ""  # why it was not measured, or what lines do that compute no node
    # By samples, the reasons why its instructions were not issued, and the time of each
    stalls: tuple[tuple[str, int], ...] = ()
    modelled_share: float | None = None  # its share by the cost model, 0 to 1
    # Where the model says what the first of its nodes computes
    file: str | None = None
    line: int | None = None
    code: str | None = None

    @property
    def known_saved_ns(self) -> float:
        """What is saved without it; nothing where the interval does not lie above zero."""
        return self.saved_ns or 0.0 if (self.saved_low_ns or 0.0) > 0 else 0.0


@dataclass(frozen=True, slots=True)
class MeasuredSite:
    """A call site of a measured kernel: what each of its nodes takes of one launch."""

    graph: str  # digest of its graph's record
    call_site: int
    nodes: tuple[str, ...]
    times_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MeasuredKernel:
    """A kernel whose inside was measured, or why it was not."""

    kernel: str
    route: InsideRoute
    launches: int  # in the recorded steps
    total_ns: int  # of these launches
    step_ns: int  # the median launch in the recorded steps
    whole_ns: float | None = None  # alone, as the parts were measured
    cold_ns: float | None = None  # alone, nothing of its arguments in the L2 cache
    warm_ns: float | None = None  # alone, launched again and again
    is_cold: bool = False  # the state in which the parts were measured: the nearer to the step's
    parts: tuple[KernelPart, ...] = ()  # the one that takes most first
    sites: tuple[MeasuredSite, ...] = ()
    text: str = ""  # the kernel's source
    reason: str = ""  # why the cost model's shares stay
    samples: int | None = None  # as many were taken of it, where it was sampled

    @property
    def hidden_ns(self) -> float | None:
        """The time alone that no part's removal saves: shared, or hidden behind other parts."""
        if self.whole_ns is None:
            return None
        return max(self.whole_ns - sum(each.known_saved_ns for each in self.parts), 0.0)


def apportioned(total: int, weights: Sequence[float]) -> list[int]:
    """Split a total by weights, by the method of the largest remainder; it adds up exactly."""
    whole = sum(weights)
    if not whole:
        raise ValueError("no weight is above zero")
    exact = [total * weight / whole for weight in weights]
    parts = [int(each) for each in exact]
    order = sorted(range(len(parts)), key=lambda at: parts[at] - exact[at])
    for at in order[: total - sum(parts)]:
        parts[at] += 1
    return parts


def times_of_nodes(
    nodes: Sequence[str], times: Iterable[tuple[Sequence[str], int]]
) -> tuple[int, ...] | None:
    """Return the time of each node, ``None`` where a time is of no node of the site.

    Args:
        nodes: the nodes of a call site.
        times: pairs of the nodes that lines compute, which share it evenly, and their time.
    """
    by_node = dict.fromkeys(nodes, 0)
    for computed, time_ns in times:
        own = [each for each in computed if each in by_node]
        if not own and time_ns:
            return None
        for node, part in zip(
            own, apportioned(time_ns, [1] * len(own)) if own else (), strict=True
        ):
            by_node[node] += part
    return tuple(by_node.values())
