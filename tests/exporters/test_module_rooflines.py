"""The tree of modules says how near each is to its roofline, with all that is below it."""

from __future__ import annotations

import pytest

import profiler_ext
from profiler_ext.exporters.terminal.module_table import tree_rows
from profiler_ext.exporters.views.modules import tree_rooflines
from tests import frames as tables
from tests.analyses import report
from tests.attribution.recordings import FIXTURES
from tests.frames import records

GPT = FIXTURES / "worked" / "gpt_compiled.session.pt.trace.json.gz"


def module(name: str, bound: str | None, took: int, at_roofline: int, **more: object) -> dict:
    """A row of the table of which all time has a roofline, or, without a bound, none."""
    fraction = at_roofline / took if bound else None
    return {
        "module": name,
        "module_class": None,
        "duration_ns": took,
        "bound": bound,
        "unit": "bf16_tensor",
        "est_flops": took,
        "est_peak_fraction": fraction,
        "roofline_ns": at_roofline if bound else None,
        "could_save_ns": took - at_roofline if bound else None,
        **more,
    }


def test_a_row_has_the_bound_of_most_of_its_time_and_what_all_below_it_could_save() -> None:
    rows = [
        module("mlp.up", "compute", 600, 300),
        module("mlp.act", "memory", 300, 240),
        module("mlp.norm", None, 100, 0),
    ]
    assert tree_rooflines(rows)["mlp"] == {
        "could_save_ns": 360,
        "bound": "compute",
        "unit": "bf16_tensor",
        "est_peak_fraction": 0.6,
    }


def test_of_a_row_of_which_less_than_half_is_known_only_the_savings_are_reported() -> None:
    rows = [module("mlp.up", "compute", 400, 300), module("mlp.norm", None, 600, 0)]
    assert tree_rooflines(rows)["mlp"] == {"could_save_ns": 100}


def test_of_several_ranks_the_bound_is_reported_without_the_part() -> None:
    rows = [module("mlp.up", "compute", 400, 300)]
    del rows[0]["est_peak_fraction"]
    found = tree_rooflines(rows)["mlp"]
    assert (found["bound"], found["est_peak_fraction"]) == ("compute", None)


def test_the_tree_adds_up_to_the_table_and_a_terminal_shows_it() -> None:
    analysis = profiler_ext.load(GPT).analysis
    rows = records(tables.by_module(analysis))
    model, *below = tree_rows(rows, 20, None)
    saved = sum(row["could_save_ns"] or 0 for row in rows if row["module"] is not None)
    assert model["could_save_ns"] == saved > 0
    up = next(row for row in below if row["label"].strip() == "up x12")
    assert (up["bound"], up["unit"]) == ("compute", "bf16_tensor")
    own = [row for row in rows if (row["module"] or "").endswith(".mlp.up")]
    bounded = sum(row["roofline_ns"] / row["est_peak_fraction"] for row in own)
    at_roofline = sum(row["roofline_ns"] for row in own)
    assert up["est_peak_fraction"] == pytest.approx(at_roofline / bounded, rel=1e-6)
    line = next(each for each in report(analysis, by="module").splitlines() if "up x12" in each)
    assert f"{100 * at_roofline / bounded:.0f}% bf16" in line
