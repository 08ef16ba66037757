"""Tables that are no sums are printed by name too: launches longest first, graphs, steps."""

from __future__ import annotations

import json

import pytest

from profiler_ext.exporters.json_output.answers import table_answer
from profiler_ext.exporters.json_output.bounds import answer_text
from profiler_ext.exporters.table_kinds import BY
from profiler_ext.sessions.merging import MergedSession
from profiler_ext.sessions.session import Session
from tests.analyses import gpu_step, report


def session() -> Session:
    held = Session(gpu_step().recording)
    held.analysis = gpu_step()
    return held


def below_the_step_time_breakdown(by: str, width: int = 100, top: int | None = 3) -> list[str]:
    """Return the lines of a table."""
    text = report(gpu_step(), by=by, top=top, width=width)
    return text.rstrip().split("\n\n")[-1].splitlines()


def test_launches_are_shown_longest_first_with_what_ran() -> None:
    assert below_the_step_time_breakdown("launches", 120) == [
        "kernel                                    launch     time  step      phase    kind  graph"
        "  call site",
        "multi_tensor_apply_kernel<...>                 8  60.0 us     3  optimizer   eager",
        "addmm: nvjet_tst_64x8_64x16_1x4_h_bz_TNT       1  50.0 us     3    forward  extern    0/0"
        "          0",
        "mm: nvjet_tst_128x64_64x8_2x1_v_bz_NTT         4  40.0 us     3   backward  extern    0/0"
        "          1",
        "(6 more)",
    ]
    spent = session().launches(step=3).duration_ns
    answer = json.loads(session().report("launches", None, "json", step=3))["rows"]
    assert [row["duration_ns"] for row in answer] == sorted(spent, reverse=True)


def test_where_there_is_little_room_the_columns_that_matter_stay() -> None:
    assert below_the_step_time_breakdown("attribution", 60) == [
        "ATen op              launch     time         line  module",
        "aten::_fused_adamw_       8  60.0 us",
        "aten.addmm.default        1  50.0 us  model.py:12  mlp.up",
        "aten.mm.default           4  40.0 us  model.py:12  mlp.up",
        "(8 more)",
    ]


def test_buffers_between_kernels_keep_their_columns_where_there_is_little_room() -> None:
    lines = below_the_step_time_breakdown("fusion", 80)
    assert lines[0] == "max saving       MB  stored at -> loaded at"
    assert [each.split() for each in (lines[1], lines[5])] == [
        ["8.39", "model.py:12", "mlp.up", "->", "model.py:13", "mlp"],
        ["4.19", "model.py:13", "mlp", "->", "model.py:12", "mlp.up"],
    ]
    assert below_the_step_time_breakdown("fusion", 50)[1].split() == [
        *("8.39", "…y:12", "mlp.up", "->", "…l.py:13", "mlp"),
    ]


def test_the_step_time_breakdown_graphs_and_steps_are_tables_too() -> None:
    assert (
        below_the_step_time_breakdown("coverage", 60)[1]
        == "line                     130 us  13.0%  compiled   line"
    )
    assert below_the_step_time_breakdown("graphs") == [
        "graph     phase  FX nodes  call sites  cache  compiling           key",
        "0/0     forward         3           2   miss     2.00 s   fkeyforward",
        "0/0    backward         3           2   miss     2.00 s  fkeybackward",
    ]
    assert below_the_step_time_breakdown("utilisation") == ["step", "3"]


@pytest.mark.parametrize("by", ["launches", "attribution", "coverage", "graphs", "utilisation"])
def test_programs_get_them_within_a_budget(by: str) -> None:
    for asked in session(), MergedSession([session()]):
        whole = table_answer(asked, BY[by])
        assert len(whole.rows) == whole.row_count == len(asked.table(BY[by].name))
        text = answer_text(whole, 4_000)
        cut = {each["where"]: each["kept"] for each in json.loads(text)["cuts"]}
        assert len(text) <= 4_100
        assert len(json.loads(text)["rows"]) == cut.get("rows", whole.row_count)
