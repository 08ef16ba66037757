"""The terminal's tree of modules adds up, folds numbered layers, and marks those that stand out."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from profiler_ext.errors import UsageError
from profiler_ext.exporters.terminal.module_table import tree_rows
from profiler_ext.exporters.terminal.report import print_session
from profiler_ext.records.vocabulary import Phase
from profiler_ext.sessions.session import load
from tests.analyses import gpu_step, report, session_of
from tests.kineto.traces import H200

CASES = H200 / "cases"
TREE = """\
module              time/step  % busy   itself  forward  backward     rest
(the model itself)    1.63 ms  100.0%  8.75 us   588 us   1.02 ms  18.7 us
  blocks.* x12        1.60 ms   98.0%  29.6 us   578 us   1.00 ms  16.8 us
    attention x12      957 us   58.8%   365 us   374 us    583 us   120 ns
    mlp x12            494 us   30.4%  28.0 us   174 us    318 us  2.85 us
    norm_2 x12        57.5 us    3.5%  57.5 us  6.92 us   50.6 us
    norm_1 x12        57.5 us    3.5%  57.5 us  7.52 us   49.2 us   722 ns
  head                15.4 us    0.9%  15.4 us  3.33 us   12.1 us
  norm                5.07 us    0.3%  5.07 us   536 ns   4.53 us
  token               1.81 us    0.1%  1.81 us   702 ns   1.10 us
(no module)            736 ns    0.0%                               736 ns
"""


def row(module, backward, forward=0, steps=1, name="Block"):
    whole = backward + forward
    phases = {**dict.fromkeys(Phase, 0), Phase.BACKWARD: backward, Phase.FORWARD: forward}
    return {
        "module": module,
        "module_class": name if module is not None else None,
        "gap": None if module is not None else "no_source_line",
        "duration_ns": whole,
        "per_step_ns": whole / steps,
        **dict.fromkeys(("bound", "unit", "est_flops", "roofline_ns", "could_save_ns")),
        **{str(phase): time for phase, time in phases.items()},
    }


def cells(rows, *names):
    return [tuple(each.get(name) for name in names) for each in rows]


@pytest.fixture(scope="module")
def gpt():
    return load(CASES / "repeated_layers.session.pt.trace.json.gz")


def test_the_modules_of_a_recording_are_a_tree(gpt):
    assert gpt.report("module", width=78, top=9).split("\n\n")[-1] == TREE


def test_layers_have_their_median_and_range_where_there_is_room(gpt):
    lines = gpt.report("module", width=120, depth=1).split("\n\n")[-1].splitlines()
    assert "each (least - most)" in lines[0]
    assert "133 us (132 - 135 us)" in lines[2]


def test_a_depth_cuts_the_tree_and_what_lies_below_counts_for_what_it_lies_in(gpt):
    lines = gpt.report("module", width=78, depth=1).split("\n\n")[-1].splitlines()
    assert [line[:18].rstrip() for line in lines[1:]] == [
        "(the model itself)",
        "  blocks.* x12",
        "  head",
        "  norm",
        "  token",
        "(no module)",
    ]
    assert lines[2].split()[2:6] == ["1.60", "ms", "98.0%", "29.6"]


def test_for_programs_a_depth_is_that_of_the_table(gpt):
    rows = csv.reader(io.StringIO(gpt.report("module", format="csv", depth=1, top=None)))
    assert {row[0] for row in rows} == {
        "module",
        "blocks",
        "head",
        "norm",
        "token",
        "(the model itself)",
        "",
    }


def test_a_layer_that_stands_out_is_marked():
    rows = [row(f"layers.{n}", 100 if n != 2 else 400) for n in range(6)]
    shown = tree_rows(rows, 10, None)
    assert cells(shown, "label", "duration_ns", "style") == [
        ("(the model itself)", 900, None),
        ("  layers.* x6", 900, None),
        ("    ! layers.2: 4.0x the median", 400, "yellow"),
    ]
    assert [sum(each[phase] for phase in Phase) for each in shown] == [900, 900, 400]
    assert shown[1]["each"] == "100 ns (100 - 400 ns)"


def test_the_steps_of_the_tree_are_those_of_the_rows():
    rows = [row("a", 100, 20, steps=2), row("a.b", 60, steps=2), row(None, 50, steps=2)]
    assert cells(tree_rows(rows, 10, None), "label", "per_step_ns", "own_ns", "forward") == [
        ("(the model itself)", 90, 0, 20),
        ("  a", 90, 60, 20),
        ("    b", 30, 30, 0),
    ]


def test_without_any_module_there_is_no_tree():
    assert tree_rows([row(None, 50)], 10, None) == []


NAMES = st.sampled_from(["a", "b", "layers", "0", "1", "2", "3", "10"])
PATHS = st.lists(NAMES, max_size=4).map(".".join)
TIMES = st.integers(0, 10**9)


@given(st.dictionaries(PATHS, st.tuples(TIMES, TIMES), max_size=12), st.integers(0, 5))
@settings(max_examples=150, deadline=None)
def test_times_are_conserved(times, depth):
    rows = [row(path, *spent) for path, spent in times.items()]
    whole = sum(each["duration_ns"] for each in rows)
    marked = [each for each in tree_rows(rows, 10**6, None) if "style" not in each]
    assert sum(each["own_ns"] for each in marked) == pytest.approx(whole)
    cut = tree_rows(rows, 10**6, depth)
    for shown in (marked, cut):
        assert not rows or shown[0]["duration_ns"] == whole
        for phase in (Phase.FORWARD, Phase.BACKWARD):
            assert not rows or shown[0][phase] == sum(each[phase] for each in rows)
    assert all(each["duration_ns"] == sum(each[p] for p in Phase) for each in marked)


@pytest.mark.parametrize(("by", "depth"), [("module", -1), ("line", 2)])
def test_a_depth_that_makes_no_sense_is_refused(by, depth):
    with pytest.raises(UsageError, match=f"the depth is {depth}; ask for "):
        report(gpu_step(), by=by, depth=depth)


def test_names_of_modules_do_not_steer_the_terminal():
    rows = [row("a\x1b]0;owned\x07.[bold]b", 5)]
    file = io.StringIO()
    print_session(session_of(gpu_step()), Console(file=file, width=100), by="module")
    assert "\x1b" not in file.getvalue()
    assert tree_rows(rows, 9, None)[1]["label"] == "  a\x1b]0;owned\x07.[bold]b"
