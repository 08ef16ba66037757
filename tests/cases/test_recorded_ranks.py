"""Two H200s with NCCL, merged: one clock, collectives in their group, each rank on its lines."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

import profiler_ext
from profiler_ext.sessions.merging import MergedSession, merge
from tests.cases.neutral import FOLDER, SUFFIX
from tests.trace_processor import reading

CASES = sorted({path.name.partition(".")[0] for path in FOLDER.glob(f"*.rank_0{SUFFIX}")})
each_case = pytest.mark.parametrize("name", CASES)


@functools.lru_cache(maxsize=1)
def merged(name: str) -> MergedSession:
    return merge([profiler_ext.load(FOLDER / f"{name}.rank_{rank}{SUFFIX}") for rank in (0, 1)])


def test_the_cases_are_there():
    assert CASES == ["ddp", "fsdp2", "tensor_parallel", "traced_fsdp"]


@each_case
def test_two_ranks_of_one_host_have_one_clock_by_their_collectives(name):
    """torch 2.11 numbers no collective; one host has one clock, so the shift is nothing."""
    first, second = merged(name).clocks
    calls = merged(name).launches(rank=1).query("kind == 'communication'")
    assert (first.shift_ns, second.collectives) == (0, len(calls))
    assert abs(second.shift_ns) < 2_000


@each_case
def test_every_collective_communicates_in_its_process_group_and_compute_has_lines(name):
    merged(name).assert_coverage(1.0)
    launches = merged(name).launches()
    calls = launches[launches.name.str.startswith("nccl")]
    assert (set(calls.kind), set(calls.process_group)) == ({"communication"}, {"0"})
    assert calls.groupby("rank").size().nunique() == 1
    assert launches[launches.kind != "communication"].process_group.isna().all()


@pytest.mark.parametrize("name", ["tensor_parallel", "traced_fsdp"])
def test_a_traced_collective_is_a_call_site_with_a_line_of_its_module(name):
    parts = merged(name).attribution().merge(merged(name).launches(), on=["rank", "launch"])
    calls = parts[parts.kind == "communication"]
    assert set(calls.aten_op.str.partition(".")[0]) == {"_c10d_functional"}
    assert calls[["node", "line", "module", "call_site"]].notna().all(axis=None)
    assert calls.gap_x.isna().all()
    assert calls[["est_bytes", "est_gb_per_s", "est_peak_fraction"]].isna().all(axis=None)


def test_a_bucket_is_of_all_the_collectives_that_went_into_it():
    parts = (
        merged("traced_fsdp")
        .attribution()
        .merge(merged("traced_fsdp").launches(), on=["rank", "launch"])
    )
    calls = parts[parts.kind == "communication"].groupby(["rank", "launch"])
    layers = [f"{n}.parametrizations.weight.0" for n in range(4)]
    assert {tuple(sorted(each)) for each in calls.module.unique()} == {tuple(layers)}
    shares = calls.duration_ns_x.agg(["min", "max"])
    assert ((shares["max"] - shares["min"]) <= 1).all()


def test_what_fsdp_gathers_and_reduces_is_in_its_pass_and_of_its_block():
    parts = merged("fsdp2").attribution().merge(merged("fsdp2").launches(), on=["rank", "launch"])
    calls = parts[(parts.kind == "communication") & (parts["rank"] == 0) & (parts.step == 1)]
    blocks = [f"blocks.{n}" for n in range(4)]
    gathers = calls[calls.aten_op == "c10d::_allgather_base_"].groupby("phase_x").module
    assert {phase: sorted(m.dropna()) for phase, m in gathers} == dict.fromkeys(
        ("forward", "backward"), blocks
    )
    reduces = calls[calls.aten_op == "c10d::_reduce_scatter_base_"]
    assert (set(reduces.phase_x), sorted(reduces.module.dropna())) == ({"backward"}, blocks)


def test_what_ddp_reduces_over_ranks_is_backward():
    calls = merged("ddp").launches().query("kind == 'communication'")
    assert calls.groupby("rank").phase.agg(list).to_dict() == dict.fromkeys(
        (0, 1), ["backward"] * 8
    )


def test_blocks_that_fsdp_leaves_to_be_compiled_alone_have_their_modules():
    launches, parts = merged("fsdp2").launches(rank=0), merged("fsdp2").attribution(rank=0)
    compiled = parts[parts.launch.isin(launches[launches.graph.notna()].launch)]
    times = compiled.groupby(["module", "phase"]).size().unstack(fill_value=0)
    ups = times.loc[[f"blocks.{n}.mlp.up" for n in range(4)]]
    assert (ups.forward.nunique(), ups.backward.nunique()) == (1, 1)
    assert ups.forward.min() > 0 < ups.backward.min()


def test_both_ranks_are_read_back_from_one_perfetto_trace(tmp_path: Path):
    merged("ddp").export(tmp_path / "both.pftrace")
    launches = merged("ddp").launches()
    with reading(tmp_path / "both.pftrace") as reader:
        drawn = reader.rows(
            "select t.name as name, count(*) as n from slice s join track t on t.id = s.track_id "
            "where t.name like '%stream %' and s.category = 'communication' group by t.id"
        )
        assert reader.import_errors() == []
    assert sum(n for _, n in drawn) == (launches.kind == "communication").sum()
