"""The GPU step with estimates in its call sites."""

from __future__ import annotations

import dataclasses

from profiler_ext.records.analysis import Analysis
from profiler_ext.records.provenance import CallSite
from tests import analyses

Numbers = dict[tuple[int, int], tuple[str | None, str | None]]


def estimated(estimates: Numbers, analysis: Analysis | None = None) -> Analysis:
    """Return a GPU step whose call sites, by graph and ordinal, have bytes and FLOPs."""
    analysis = analysis or analyses.gpu_step()

    def with_estimate(graph: int, site: CallSite) -> CallSite:
        moved, flops = estimates.get((graph, site.ordinal), (None, None))
        return dataclasses.replace(site, bytes_moved=moved, flops=flops)

    graphs = []
    for number, graph in enumerate(analysis.recording.graphs):
        assert graph.provenance is not None
        sites = tuple(with_estimate(number, site) for site in graph.provenance.call_sites)
        provenance = dataclasses.replace(graph.provenance, call_sites=sites)
        graphs.append(dataclasses.replace(graph, provenance=provenance))
    recording = dataclasses.replace(analysis.recording, graphs=tuple(graphs))
    return dataclasses.replace(analysis, recording=recording)
