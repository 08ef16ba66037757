"""Which kernels of a recording are looked into: by name, or by a line that they compute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from profiler_ext.errors import UsageError
from profiler_ext.exporters.explain.subjects import Kind, Subject, is_of, resolve_subject
from profiler_ext.records.analysis import Analysis, Place
from profiler_ext.records.inside import KernelPart, MeasuredSite, times_of_nodes
from profiler_ext.records.kernel_lines import KernelSource
from profiler_ext.records.provenance import CallSite


@dataclass(frozen=True, slots=True)
class SiteSource:
    """A call site, and the source of its kernel with the nodes there."""

    graph: str  # digest of its graph's record
    site: CallSite
    source: KernelSource


@dataclass(frozen=True, slots=True)
class ChosenKernel:
    """A kernel of one text, at all call sites."""

    sites: tuple[SiteSource, ...]
    launches: int
    total_ns: int
    step_ns: int  # the median launch
    places: Mapping[str, Place]  # of the nodes of the first site

    @property
    def source(self) -> KernelSource:
        """The source, with the nodes of the first site."""
        return self.sites[0].source

    @property
    def site(self) -> CallSite:
        """The first site."""
        return self.sites[0].site

    @property
    def kernel(self) -> str:
        """Inductor's name of it."""
        return self.source.kernel

    def part(self, nodes: tuple[str, ...], lines: Iterable[int]) -> KernelPart:
        """Return lines that compute nodes of the first site, not measured yet."""
        # Of a node that several parts compute, each has an even share by the model
        computed = {line.nodes for line in self.source.lines}
        count = Counter(node for together in computed for node in together)
        weights = dict(zip(self.site.nodes, self.site.weights, strict=True))
        modelled = sum(weights.get(node, 0) / max(count[node], 1) for node in nodes)
        modelled /= max(sum(weights.values()), 1)
        place = next((self.places[each] for each in nodes if each in self.places), None)
        return KernelPart(
            nodes,
            tuple(lines),
            modelled_share=modelled,
            file=None if place is None else place.file,
            line=None if place is None else place.line,
            code=None if place is None else place.code,
        )

    def times_of_sites(self, parts: Sequence[KernelPart]) -> tuple[MeasuredSite, ...]:
        """Return what each node takes at each call site; none where one does not fit."""
        sites = list[MeasuredSite]()
        for each in self.sites:
            times = [
                (tuple(dict.fromkeys(n for at in part.lines for n in each.source.line(at).nodes)),
                 part.time_ns)
                for part in parts
            ]  # fmt: skip
            of_nodes = times_of_nodes(each.site.nodes, times)
            if of_nodes is None:
                return ()
            sites.append(MeasuredSite(each.graph, each.site.ordinal, each.site.nodes, of_nodes))
        return tuple(sites)


def chosen_kernels(
    analysis: Analysis, sources: Sequence[KernelSource], query: str, most: int
) -> list[ChosenKernel]:
    """Return the kernels that a name means, the one that takes most time first.

    Args:
        analysis: of the process that generated the kernels.
        sources: what it generated.
        query: a kernel's name; ``FILE:LINE`` or a module, for all kernels that compute something
            of it; or nothing, for all kernels.
        most: how many, at most.

    Raises:
        UsageError: No generated kernel ran that it means.
        UnclearNameError: It means nothing, or several things.
    """
    subject = resolve_subject(query, [analysis]) if query else None
    by_place = {(each.module, each.kernel, each.writes): each for each in sources}
    sites = dict[str, list[_Launched]]()
    for graph, site, durations in _launched(analysis, subject):
        instance = analysis.recording.graphs[graph]
        source = by_place.get((instance.output_module, site.kernel, site.writes))
        if source is not None:
            found = SiteSource(instance.record.digest, site, source)
            sites.setdefault(source.text, []).append(_Launched(graph, found, durations))
    if not sites:
        raise UsageError(
            f"{query} is in no kernel that Inductor generated"
            if query
            else "no kernel that Inductor generated ran in the recorded steps"
        )
    chosen = [_chosen(analysis, each) for each in sites.values()]
    return sorted(chosen, key=lambda each: -each.total_ns)[:most]


@dataclass(frozen=True, slots=True)
class _Launched:
    """The launches of a call site."""

    graph: int  # index of its graph
    site: SiteSource
    durations_ns: list[int]


def _chosen(analysis: Analysis, sites: Sequence[_Launched]) -> ChosenKernel:
    durations = [each for own in sites for each in own.durations_ns]
    distinct = {(each.site.graph, each.site.site.ordinal): each.site for each in sites}
    first = sites[0]
    return ChosenKernel(
        tuple(distinct.values()),
        len(durations),
        sum(durations),
        round(float(np.median(durations))),
        {
            place.node: place
            for place in analysis.places
            if place.graph == first.graph and place.node in first.site.site.nodes
        },
    )


def _launched(
    analysis: Analysis, subject: Subject | None
) -> Iterator[tuple[int, CallSite, list[int]]]:
    """Yield the call sites that a subject means, with the durations of their launches."""
    launches = analysis.launches
    known = launches.in_steps & ~np.ma.getmaskarray(launches.call_site)
    rows = np.flatnonzero(known & ~np.ma.getmaskarray(launches.graph))
    if subject is not None and subject.kind is Kind.KERNEL:
        is_kernel = launches.kernel.where(subject.name) | launches.name.where(subject.name)
        rows = rows[is_kernel[rows]]
    elif subject is not None:
        own = np.array([is_of(place, subject) for place in analysis.places], dtype=bool)
        rows = rows[np.isin(rows, analysis.shares.launch[own[analysis.shares.place]])]
    keys = np.stack([launches.graph[rows].filled(-1), launches.call_site[rows].filled(-1)], axis=1)
    for graph, ordinal in np.unique(keys, axis=0).tolist():
        at = (keys == (graph, ordinal)).all(axis=1)
        site = analysis.recording.graphs[graph].call_sites[ordinal]
        yield graph, site, launches.duration_ns[rows[at]].tolist()
