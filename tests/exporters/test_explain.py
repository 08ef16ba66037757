"""The page about one thing adds up with the tables, finds what a name means, and says why not."""

from __future__ import annotations

import pytest

from profiler_ext.errors import UsageError
from profiler_ext.exporters.explain.against import Earlier
from profiler_ext.exporters.explain.making import explain
from profiler_ext.exporters.json_output.bounds import answer_text
from profiler_ext.sessions.comparing import diff
from tests.exporters.explained import (
    FINDINGS,
    LAYOUT,
    SUFFIX,
    gpt,
    loaded,
    of,
    rows,
)
from tests.exporters.test_answers import valid
from tests.test_merging import two_ranks


def test_each_line_has_the_time_of_its_row() -> None:
    for row in rows(gpt().by_line()):
        if row["file"] is None:
            continue
        about = of(f"{row['file']}:{row['line']}")
        assert about.time.duration_ns == row["duration_ns"]
        assert about.time.inclusive_ns == row["inclusive_ns"]
        assert about.time.launches == row["launches"]
        assert about.time.fraction == pytest.approx(row["fraction"])
        names = ("forward", "backward", "recompute", "gradient_accumulation", "optimizer", "other")
        assert about.time.phases_ns == {name: row[name] for name in names if row[name]}
        near = about.roofline
        assert near is not None
        assert (near.est_bytes, near.could_save_ns) == (row["est_bytes"], row["could_save_ns"])


def test_each_module_has_the_time_of_its_row_with_those_below() -> None:
    for depth in (1, 2):
        for row in rows(gpt().by_module(depth)):
            if row["module"] and row["module"].count(".") == depth - 1:
                about = of(f"module:{row['module']}")
                assert about.time.duration_ns == row["duration_ns"]
                assert sum(each.duration_ns for each in about.modules) == row["duration_ns"]


def test_the_largest_kernels_have_the_time_of_their_rows() -> None:
    table = gpt().by_kernel()
    for name in table["kernel"].unique()[:8]:
        about = of(f"kernel:{name}")
        row = table[table["kernel"] == name]
        assert about.time.duration_ns == row["duration_ns"].sum()
        assert about.time.launches == row["launches"].sum()


@pytest.mark.parametrize("name", ["eager_lines.py:58", "blocks.*.up", "extern_kernels.mm", "head"])
def test_its_parts_add_up(name: str) -> None:
    about = of(name)
    whole = about.time.duration_ns
    assert sum(each.duration_ns for each in about.steps) == whole
    assert sum(each.duration_ns for each in about.kernels) == whole
    assert sum(each.duration_ns for each in about.ops) == whole
    assert sum(about.time.phases_ns.values()) == whole
    assert sum(about.site_evidence_ns.values()) == whole
    assert sum(about.line_evidence_ns.values()) == whole
    fused = sum(each.duration_ns for each in about.fused_with)
    assert whole + fused == about.time.inclusive_ns
    assert sum(each.total_ns for each in about.kernels) == about.time.inclusive_ns
    for kernel in about.kernels:
        assert 0 < kernel.min_ns <= kernel.median_ns <= kernel.max_ns <= kernel.total_ns
        assert sum(kernel.site_evidence_ns.values()) == kernel.duration_ns
        assert sum(kernel.phases_ns.values()) == kernel.duration_ns


def test_a_pattern_is_all_that_fit_it() -> None:
    each = [of(f"blocks.{layer}.up").time.duration_ns for layer in range(4)]
    about = of("blocks.*.up")
    assert about.time.duration_ns == sum(each)
    assert about.time.submodules_ns == 0
    assert sorted(row.duration_ns for row in about.modules) == sorted(each)


def test_a_line_in_layers_alike_tells_them_as_one() -> None:
    up = next(row for row in of("eager_lines.py:58").modules if row.module == "blocks.*.up")
    assert (up.modules, up.duration_ns) == (4, of("blocks.*.up").time.duration_ns)


def test_ranks_are_summed_and_steps_are_reported_of_each() -> None:
    ranks = two_ranks()
    alone = [explain(each, "(model)", None) for each in ranks.sessions]
    both = explain(ranks, "(model)", None)
    assert both.time.duration_ns == sum(each.time.duration_ns for each in alone)
    assert both.steps == [step for each in alone for step in each.steps]
    assert len({step.rank for step in both.steps}) == 2


def test_what_top_leaves_out_is_reported() -> None:
    about, whole = explain(gpt(), "eager_lines.py:58", top=2), of("eager_lines.py:58")
    cut = next(cut for cut in about.cuts if cut.where == "kernels")
    assert (cut.kept, cut.total) == (2, len(whole.kernels))
    kept = sum(each.duration_ns for each in about.kernels)
    assert kept + (cut.left_out_ns or 0) == about.time.duration_ns
    with pytest.raises(UsageError, match="cannot show the top 0 rows"):
        explain(gpt(), "head", top=0)


def test_a_run_against_itself_changed_nothing() -> None:
    for name in ("eager_lines.py:58", "blocks.*.up", "extern_kernels.mm"):
        about = explain(gpt(), name, None, Earlier("itself", gpt().analyses))
        assert about.against is not None
        change = about.against.change
        assert change.base_ns == change.head_ns == about.time.duration_ns
        assert (change.delta_ns, change.verdict) == (0, "equal")
        assert (about.against.base.runs[0].name, about.against.fusions) == ("itself", [])


@pytest.mark.parametrize(
    ("case", "name", "verdict"),
    [
        ("layout_conversion", "(model)", "slower"),
        ("far_from_roofline", "flaws.py:103", "slower"),
    ],
)
def test_what_changed_is_what_the_comparison_says(case: str, name: str, verdict: str) -> None:
    base, head = (loaded(FINDINGS / f"{case}{kind}.{SUFFIX}") for kind in (".remedied", ""))
    about = explain(head, name, None, Earlier("base", base.analyses))
    assert about.against is not None
    rows = diff(base, head).comparison.table("module" if name == "(model)" else "line").rows
    own = [row for row in rows if row.subject.account == "device" and row.head is not None]
    if name == "(model)":
        own = [row for row in own if row.subject.module is not None]
    else:
        own = [row for row in own if row.subject.line == 103]
    assert about.against.change.head_ns == sum(row.change.head_ns for row in own)
    assert about.against.change.base_ns == sum(row.change.base_ns for row in own) > 0
    assert about.against.change.head_ns == about.time.duration_ns
    assert about.against.change.verdict == verdict
    assert verdict in about.against.sentences[0]
    assert valid(answer_text(about))["against"]["base"]["runs"][0]["name"] == "base"


def test_what_is_new_says_so() -> None:
    about = explain(gpt(), "eager_lines.py:58", None, Earlier("base", loaded(LAYOUT).analyses))
    assert about.against is not None
    assert (about.against.change.base_ns, about.against.change.verdict) == (0, "new")
    assert "\n\nSince base\n" in gpt().explain("head", against=loaded(LAYOUT)).replace(
        "the other", "base"
    )


def test_a_roofline_says_of_how_much_of_the_time_it_is_known() -> None:
    about = of("(model)", loaded(LAYOUT))
    assert about.roofline is not None
    table = loaded(LAYOUT).launches()
    known = table[table["est_bytes"].notna() | table["est_flops"].notna()]
    assert 0 < about.roofline.known_ns <= known["duration_ns"].sum()
    assert "bytes and operations are known for 0.3% of its time only" in loaded(LAYOUT).explain(
        "(model)"
    )
