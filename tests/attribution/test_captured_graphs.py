"""Recorded CUDA graphs of a program: each replayed kernel stands where the eager one does.

Recorded on an H100 with torch 2.11, each with the same work without a graph. Equal kernels are told
apart by their grids too, which decides between branches on two streams.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

from profiler_ext.attribution.analysis import attribute
from profiler_ext.kineto.names import is_graph_launch
from profiler_ext.kineto.recording import read_recording
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.evidence import SiteEvidence

RECORDINGS = Path(__file__).parents[1] / "fixtures" / "cuda_graphs"
_Kernel = tuple[str, str, int]
_Parts = frozenset[tuple[str | None, int | None, str | None, str]]


@cache
def _analysis(name: str) -> Analysis:
    return attribute(read_recording(RECORDINGS / f"{name}.session.pt.trace.json.gz"))


def _replays(analysis: Analysis) -> dict[int, list[int]]:
    """Return the launches of each replay, in order; of what is launched alone under -1."""
    events, launches = analysis.recording.trace.events, analysis.launches
    correlations = events.correlation.filled(-1).tolist()
    replays = {correlations[row] for row in range(len(events)) if is_graph_launch(events.name[row])}
    own: dict[int, list[int]] = defaultdict(list)
    for launch, correlation in enumerate(launches.correlation.filled(-1).tolist()):
        own[correlation if correlation in replays else -1].append(launch)
    return own


def _parts(analysis: Analysis, chosen: list[int]) -> dict[_Kernel, _Parts]:
    """Return the lines, modules and phases of launches, by name, grid and number of equal ones."""
    events, launches, shares = analysis.recording.trace.events, analysis.launches, analysis.shares
    places: dict[int, set[tuple[str | None, int | None, str | None, str]]] = defaultdict(set)
    for launch, at in zip(shares.launch.tolist(), shares.place.tolist(), strict=True):
        place = analysis.places[at]
        places[launch].add((place.file, place.line, place.module, place.phase))
    seen: Counter[tuple[str, str]] = Counter()
    parts: dict[_Kernel, _Parts] = {}
    for launch in chosen:
        shape = events.launch_shape[int(launches.event[launch])]
        kernel = launches.name[launch].partition(" (")[0], shape.partition("],[")[0]
        parts[*kernel, seen[kernel]] = frozenset(places[launch])
        seen[kernel] += 1
    return parts


@pytest.mark.parametrize("name", ["branches", "compiled_layers", "train_step"])
def test_each_replayed_kernel_stands_where_the_eager_one_does(name: str) -> None:
    replayed, eager = _analysis(name), _analysis(f"{name}.eager")
    replays = _replays(replayed)
    truth = _parts(eager, _replays(eager)[-1])
    assert all(line is not None for parts in truth.values() for _, line, _, _ in parts)
    assert len(replays) - (-1 in replays) >= 3
    for replay in (own for correlation, own in replays.items() if correlation != -1):
        assert _parts(replayed, replay) == truth
        evidence = {replayed.launches.evidence[launch] for launch in replay}
        assert evidence == {SiteEvidence.CAPTURED_NODE}
