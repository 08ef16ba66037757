"""Replays of CUDA graphs that the program captured: each launch has the place of its node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from profiler_ext.attribution.analysis import attribute
from profiler_ext.attribution.launches.node_order import DIFFERS, OPEN, NodeOrder, Replay
from profiler_ext.kineto.names import CudaGraphMark, cuda_graph_mark
from profiler_ext.kineto.recording import packed_capture, read_recording, write_recording
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.recording import GraphNode, Recording, captured_graph
from tests.attribution.timeline import Timeline

_OPS = (("aten::mm", "gemm"), ("aten::add", "add"), ("aten::mm", "gemm"), ("aten::fill_", ""))
_NODES = tuple(GraphNode(kernel, "kernel" if kernel else "gpu_memset") for _, kernel in _OPS)
_CHAIN = ((0, 1), (1, 2), (2, 3))


def _captured(ops: Sequence[tuple[str, str]] = _OPS, number: int = 0) -> Recording:
    """Record a capture: each op's call becomes a node, and nothing runs."""
    line = Timeline()
    line.op("aten::zeros", "warm_up")
    line.op(cuda_graph_mark(number, CudaGraphMark.BEGINS))
    for op, kernel in ops:
        with line.range(op):
            line.noted_call("cuLaunchKernel" if kernel else "cudaMemsetAsync")
    line.op(cuda_graph_mark(number, CudaGraphMark.ENDS))
    return line.recording()


def _replayed(
    *ran: str,
    nodes: Sequence[GraphNode] = _NODES,
    captured: Recording | None = None,
    marked: int = 0,
    edges: Sequence[tuple[int, int]] = _CHAIN,
) -> Recording:
    line = Timeline()
    with line.range(cuda_graph_mark(marked, CudaGraphMark.REPLAYS)):
        line.replay(*ran)
    line.op("aten::relu", "relu")
    graph = captured_graph(0, 0, nodes, edges)
    capture = packed_capture(captured or _captured())
    return replace(line.recording(), cuda_graphs=(graph,), captures=(capture,))


def _verdicts(recording: Recording) -> list[tuple[str | None, str, str]]:
    """Return op, evidence and gap of each launch, in order."""
    analysis = attribute(recording)
    launches, of = (
        analysis.launches,
        dict(zip(analysis.shares.launch.tolist(), analysis.shares.place.tolist(), strict=True)),
    )
    return [
        (analysis.places[of[at]].aten_op, launches.evidence[at], launches.gap[at])
        for at in range(len(launches))
    ]


_RAN = ("gemm", "add", "gemm", "Memset (Device)")
_NO_GAP = ""


def test_each_launch_has_the_op_of_its_node() -> None:
    """Equal kernels are told apart by their order."""
    verdicts = _verdicts(_replayed(*_RAN))
    assert verdicts[:4] == [(op, "captured_node", _NO_GAP) for op, _ in _OPS]
    assert verdicts[4][:2] == ("aten::relu", "launching_op")


def test_a_saved_session_has_the_same(tmp_path: Path) -> None:
    """The capture stands in the session's file."""
    recording, path = _replayed(*_RAN), tmp_path / "session.pt.trace.json.gz"
    write_recording(path, recording)
    again = read_recording(path)
    assert again.cuda_graphs == recording.cuda_graphs
    assert again.captures == recording.captures
    assert _verdicts(again) == _verdicts(recording)


@pytest.mark.parametrize(
    ("ran", "differing"),
    [
        (("gemm", "add", "Memset (Device)"), [0]),
        (("gemm", "gemm", "add", "gemm", "Memset (Device)"), [0, 1, 3]),
        (("gemm", "add", "gemm", "other", "Memset (Device)"), [3]),
    ],
    ids=["one is lost", "one more", "another kernel"],
)
def test_what_does_not_fit_the_capture_is_a_gap(ran: tuple[str, ...], differing: list[int]) -> None:
    """Kernels of a name that ran another number of times have no node."""
    verdicts = _verdicts(_replayed(*ran))[: len(ran)]
    gaps = [at for at, verdict in enumerate(verdicts) if verdict[2] == GapReason.REPLAY_DIFFERS]
    assert gaps == differing


@pytest.mark.parametrize(
    "nodes",
    [_NODES[1:], (*_NODES, _NODES[0]), (*_NODES[:3], _NODES[0])],
    ids=["a call more", "a node more", "a memset that is a kernel"],
)
def test_calls_that_are_not_those_of_the_nodes_attribute_nothing(
    nodes: tuple[GraphNode, ...],
) -> None:
    """Of a capture with other calls than nodes it is not known which is which."""
    verdicts = _verdicts(_replayed(*_RAN, nodes=nodes))
    assert {gap for _, _, gap in verdicts[:4]} == {GapReason.REPLAY_DIFFERS}


def test_a_fill_of_no_bytes_becomes_no_node() -> None:
    """Its call is left out where it is not beside another one."""
    ops = (_OPS[0], ("aten::zero_", ""), *_OPS[1:])
    verdicts = _verdicts(_replayed(*_RAN, captured=_captured(ops)))
    assert [op for op, _, _ in verdicts[:4]] == [op for op, _ in _OPS]
    beside = (*_OPS[:3], ("aten::zero_", ""), _OPS[3])
    verdicts = _verdicts(_replayed(*_RAN, captured=_captured(beside)))
    assert {gap for _, _, gap in verdicts[:4]} == {GapReason.REPLAY_DIFFERS}


def test_nodes_in_another_order_than_their_calls_attribute_nothing() -> None:
    """A node that waits for a later one was captured after it."""
    verdicts = _verdicts(_replayed(*_RAN, edges=((0, 1), (2, 1), (2, 3))))
    assert {gap for _, _, gap in verdicts[:4]} == {GapReason.REPLAY_DIFFERS}


def test_a_replay_of_an_unknown_graph_is_the_gap_of_its_own() -> None:
    """It was captured while capture was off."""
    verdicts = _verdicts(_replayed(*_RAN, marked=1))
    assert {gap for _, _, gap in verdicts[:4]} == {GapReason.OWN_CUDA_GRAPH}


def _match(
    kinds: Sequence[int],
    edges: Sequence[tuple[int, int]],
    ran: Sequence[tuple[int, int, int]],
    outcomes: Sequence[int] | None = None,
    streams: Sequence[int] | None = None,
) -> list[int]:
    """Return the node of each event, given as kind, begin and end."""
    order = NodeOrder(
        np.array(kinds),
        np.array(edges, dtype=np.int64).reshape(-1, 2),
        np.array(range(len(kinds)) if outcomes is None else outcomes),
    )
    columns = map(np.array, zip(*ran, strict=True))
    in_streams = np.full(len(ran), 7) if streams is None else np.array(streams)
    return order.match(Replay(*columns, in_streams)).tolist()


# Two branches, a and b: each a kernel of its own, then the same kernel, then one of its own.
_BRANCHES = (0, 1, 2, 1, 3, 4)
_BRANCH_EDGES = ((0, 1), (2, 3), (1, 4), (3, 5))


def test_equal_kernels_of_branches_are_known_by_what_runs_before_them() -> None:
    """The first of the two began while the other branch was not that far."""
    ran = [(0, 0, 10), (2, 0, 30), (1, 10, 20), (1, 30, 40), (3, 21, 25), (4, 40, 50)]
    assert _match(_BRANCHES, _BRANCH_EDGES, ran) == [0, 2, 1, 3, 4, 5]
    swapped = [(2, 0, 10), (0, 0, 30), (1, 10, 20), (1, 30, 40), (4, 21, 25), (3, 40, 50)]
    assert _match(_BRANCHES, _BRANCH_EDGES, swapped) == [2, 0, 3, 1, 5, 4]


def test_equal_kernels_of_branches_at_the_same_time_are_open() -> None:
    """Nothing says which of the two is which."""
    ran = [(0, 0, 10), (2, 0, 10), (1, 10, 20), (1, 11, 20), (3, 21, 25), (4, 22, 50)]
    assert _match(_BRANCHES, _BRANCH_EDGES, ran) == [0, 2, OPEN, OPEN, 4, 5]


def test_equal_kernels_of_branches_are_known_by_the_stream_of_the_branch() -> None:
    """Each branch has a kernel of its own, which shows the branch's stream."""
    ran = [(0, 0, 10), (2, 0, 10), (1, 10, 20), (1, 11, 20), (3, 21, 25), (4, 22, 50)]
    streams = [7, 9, 9, 7, 7, 9]
    assert _match(_BRANCHES, _BRANCH_EDGES, ran, streams=streams) == [0, 2, 3, 1, 4, 5]
    mixed = [7, 9, 9, 7, 9, 9]
    assert _match(_BRANCHES, _BRANCH_EDGES, ran, streams=mixed)[2:4] == [OPEN, OPEN]


def test_equal_kernels_of_one_place_need_no_order() -> None:
    """Where both have the same place it does not matter."""
    ran = [(0, 0, 10), (2, 0, 10), (1, 10, 20), (1, 11, 20), (3, 21, 25), (4, 22, 50)]
    assert OPEN not in _match(_BRANCHES, _BRANCH_EDGES, ran, outcomes=(0, 1, 2, 1, 3, 4))


def test_kernels_that_start_before_their_predecessor_ends_give_no_times() -> None:
    """A dependent launch may begin early, so its begin says nothing of the branches."""
    ran = [(0, 0, 10), (2, 0, 30), (1, 10, 20), (1, 30, 40), (3, 19, 25), (4, 35, 50)]
    early = [(0, 0, 10), (2, 0, 30), (1, 10, 20), (1, 30, 40), (3, 21, 25), (4, 29, 50)]
    edges = (*_BRANCH_EDGES, (2, 5))
    assert _match(_BRANCHES, edges, early) == [0, 2, OPEN, OPEN, 4, 5]
    assert _match(_BRANCHES, _BRANCH_EDGES, ran).count(OPEN) == 2


def test_equal_kernels_in_line_keep_their_order() -> None:
    """Before and after the branches the order alone says which is which."""
    kinds, edges = (0, 0, 1, 1, 0), ((0, 1), (1, 2), (1, 3), (2, 4), (3, 4))
    ran = [(0, 0, 1), (0, 1, 2), (1, 2, 4), (1, 2, 4), (0, 4, 5)]
    assert _match(kinds, edges, ran) == [0, 1, OPEN, OPEN, 4]
    assert _match(kinds, edges, ran[:-1])[:2] == [DIFFERS, DIFFERS]
