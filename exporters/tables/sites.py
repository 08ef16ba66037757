"""Owns where launches are called from: the call site, the main place, and the shapes they take."""

from __future__ import annotations

import numpy as np
from pandas.api.extensions import ExtensionArray

from profiler_ext.exporters.tables.arrays import TEXT, gather
from profiler_ext.kineto.op_inputs import OpInput, inputs_of
from profiler_ext.records import Analysis, GraphInstance, Interned, Ints


def largest_places(analysis: Analysis) -> Ints:
    """Return the place of the largest share of each launch."""
    shares = analysis.shares
    order = np.lexsort((-shares.duration_ns, shares.launch))
    firsts = np.searchsorted(shares.launch[order], np.arange(len(analysis.launches)))
    return shares.place[order][firsts].astype(np.int64)


def site_paths(analysis: Analysis) -> ExtensionArray:
    """Return the call site of each launch in its graph's wrapper, as a path; absent outside."""
    graph, site = analysis.launches.graph, analysis.launches.call_site
    known = ~(np.ma.getmaskarray(graph) | np.ma.getmaskarray(site))
    pairs = np.column_stack((np.ma.getdata(graph)[known], np.ma.getdata(site)[known]))
    distinct, inverse = np.unique(pairs, axis=0, return_inverse=True)
    codes = np.full(len(known), -1, np.int64)
    codes[known] = inverse.ravel()
    graphs = analysis.recording.graphs
    return gather([_site_path(graphs[g], int(s)) for g, s in distinct], codes, TEXT)


def input_shapes(analysis: Analysis) -> Interned:
    """Return the tensors that the op of each launch was given: ``bf16[8, 768] f32[768]``.

    ``""`` where no op launched it, or shapes were not recorded.

    Args:
        analysis: what attribution found.
    """
    trace, ops = analysis.recording.trace, analysis.launches.op_event
    known = ~np.ma.getmaskarray(ops)
    rows, inverse = np.unique(ops.data[known], return_inverse=True)
    inputs = inputs_of(trace.raw, trace.events.position[rows])
    texts = list(map(_inputs, inputs.distinct))
    pool = {text: at for at, text in enumerate(dict.fromkeys(("", *texts)))}
    codes = np.zeros(len(ops), np.int32)
    of_distinct = np.array([pool[text] for text in texts], np.int32)
    codes[known] = of_distinct[inputs.codes][inverse.ravel()]
    return Interned(codes, tuple(pool))


def _site_path(graph: GraphInstance, ordinal: int) -> str:
    return next((site.path for site in graph.call_sites if site.ordinal == ordinal), str(ordinal))


def _inputs(inputs: tuple[OpInput, ...] | None) -> str:
    tensors = (each for each in inputs or () if each.dtype is not None)
    return " ".join(map(_tensor, tensors))


def _tensor(tensor: OpInput) -> str:
    return f"{tensor.dtype}[{', '.join(map(str, tensor.sizes))}]"
