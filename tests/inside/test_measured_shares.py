"""What was measured inside a kernel replaces the cost model's shares, and says so."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from profiler_ext.errors import TraceError
from profiler_ext.exporters.explain.making import explain
from profiler_ext.exporters.json_output.documents import InsideAnswer
from profiler_ext.records.inside import (
    InsideRoute,
    MeasuredKernel,
    MeasuredSite,
    apportioned,
    times_of_nodes,
)
from profiler_ext.sessions.session import Session, load
from tests.exporters.explained import gpt


def fused_kernel() -> tuple[str, MeasuredKernel]:
    """Return a kernel of several nodes, all of whose time the last node takes but a tenth."""
    session = gpt()
    graphs = session.analysis.recording.graphs
    table = session.launches().dropna(subset="step")
    kernel = table[table["kind"] == "triton"].groupby("kernel")["duration_ns"].sum().idxmax()
    sites = [
        MeasuredSite(
            graph.record.digest,
            site.ordinal,
            site.nodes,
            (*[0] * (len(site.nodes) - 2), 100, 900),
        )
        for graph in graphs
        for site in graph.call_sites
        if site.kernel == kernel and len(site.nodes) > 1
    ]
    assert sites
    return str(kernel), MeasuredKernel(
        str(kernel), InsideRoute.KNOCK_OUT, 2, 2000, 1000, sites=tuple(sites)
    )


def measured() -> tuple[str, Session]:
    kernel, inside = fused_kernel()
    return kernel, Session(replace(gpt().recording, measured=(inside,)))


def test_the_shares_of_a_measured_kernel_are_those_that_were_measured() -> None:
    kernel, session = measured()
    launches = session.launches()
    rows = launches[launches["kernel"] == kernel]
    assert set(rows["share_evidence"]) == {"measured_inside"}
    parts = session.attribution()
    for launch, duration in zip(rows["launch"], rows["duration_ns"], strict=True):
        own = parts[parts["launch"] == launch]["duration_ns"].tolist()
        assert sum(own) == duration
        assert own[-1] == pytest.approx(0.9 * duration, abs=1)
        assert sum(own[:-2]) == 0


def test_other_kernels_keep_the_model_and_their_shares() -> None:
    kernel, session = measured()
    before, after = gpt(), session
    others = before.launches()[before.launches()["kernel"] != kernel]
    for name in ("evidence", "share_evidence", "phase", "duration_ns"):
        now = after.launches().loc[others.index, name]
        assert now.dropna().tolist() == others[name].dropna().tolist()
    assert "cost_model" in set(others["share_evidence"].dropna())
    assert "measured_inside" not in set(before.launches()["share_evidence"].dropna())
    unequal = before.attribution()["duration_ns"] != after.attribution()["duration_ns"]
    assert set(before.attribution()[unequal]["launch"]) <= set(
        before.launches()[before.launches()["kernel"] == kernel]["launch"]
    )


def test_the_explanation_of_a_kernel_says_how_it_is_split() -> None:
    kernel, session = measured()
    about = explain(session, f"kernel:{kernel}")
    assert about.share_evidence_ns == {"measured_inside": about.time.duration_ns}
    modelled = explain(gpt(), f"kernel:{kernel}")
    assert modelled.share_evidence_ns == {"cost_model": modelled.time.duration_ns}


@pytest.mark.parametrize("change", ["nodes", "graph", "zero"])
def test_what_was_measured_of_another_graph_is_not_used(change: str) -> None:
    kernel, inside = fused_kernel()
    sites = [
        replace(
            each,
            graph="another" if change == "graph" else each.graph,
            nodes=each.nodes[::-1] if change == "nodes" else each.nodes,
            times_ns=(0,) * len(each.nodes) if change == "zero" else each.times_ns,
        )
        for each in inside.sites
    ]
    recording = replace(gpt().recording, measured=(replace(inside, sites=tuple(sites)),))
    launches = Session(recording).launches()
    assert set(launches[launches["kernel"] == kernel]["share_evidence"]) == {"cost_model"}


def test_a_session_is_loaded_with_what_lies_beside_it(tmp_path: Path) -> None:
    kernel, inside = fused_kernel()
    gpt().save(tmp_path)
    answer = InsideAnswer(
        command=["train.py"],
        query=kernel,
        device="a GPU",
        duration_ns=1,
        kernels=[inside],
        notes=[],
    )
    (tmp_path / "inside.json").write_bytes(msgspec.json.encode(answer))
    session = load(tmp_path)
    assert session.recording.measured == (inside,)
    launches = session.launches()
    assert set(launches[launches["kernel"] == kernel]["share_evidence"]) == {"measured_inside"}
    (tmp_path / "inside.json").write_text("{}")
    with pytest.raises(TraceError, match=r"inside.json is no answer of profiler-ext inside"):
        load(tmp_path)
    (tmp_path / "inside.json").unlink()
    assert load(tmp_path).recording.measured == ()
    shutil.rmtree(tmp_path)


def test_a_total_is_split_exactly() -> None:
    assert apportioned(10, [1, 1, 1]) == [4, 3, 3]
    assert apportioned(1000, [0.5, 0, 0.25]) == [667, 0, 333]
    with pytest.raises(ValueError, match="no weight"):
        apportioned(10, [0, 0])


def test_lines_of_several_nodes_are_shared_evenly_and_others_refused() -> None:
    assert times_of_nodes(["a", "b", "c"], [(["a"], 5), (["a", "b"], 5)]) == (8, 2, 0)
    assert times_of_nodes(["a"], [(["a"], 5), (["x"], 0)]) == (5,)
    assert times_of_nodes(["a"], [(["x"], 1)]) is None
