"""Findings stand first wherever a session is shown; no name in them does harm."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from html import escape

import msgspec
import pytest
from rich.console import Console

from profiler_ext import cli
from profiler_ext.exporters import notebook
from profiler_ext.exporters.html import html_text
from profiler_ext.exporters.html import sections as html_findings
from profiler_ext.exporters.html.sections import place_links
from profiler_ext.exporters.json_output.answers import findings_answer
from profiler_ext.exporters.json_output.bounds import answer_text
from profiler_ext.exporters.json_output.documents import FindingsAnswer
from profiler_ext.exporters.tensorboard_plugin.writing import top_findings
from profiler_ext.exporters.terminal.report import print_all, print_first
from profiler_ext.exporters.views import findings as texts
from profiler_ext.findings import (
    Confidence,
    Figure,
    FigureUnit,
    Finding,
    Findings,
    Location,
    SavingPer,
    SkippedRule,
)
from profiler_ext.records.recording import Settings
from profiler_ext.sessions.session import Session
from tests import frames as tables
from tests.analyses import gpu_step
from tests.exporters.hostile import HOSTILE, steering

FINDING = Finding(
    rule="fp32_matmul",
    summary="matrix products run in fp32 without tensor cores",
    location=Location("/home/ann/gpt/model.py", 12, "h = self.up(x)", "mlp.up", "sgemm", "0/0"),
    est_saving_ns=4_000_000,
    total_ns=10_000_000,
    saving_per=SavingPer.STEP,
    confidence=Confidence.ESTIMATED,
    evidence=(Figure("they take", 5_000_000, FigureUnit.NS), Figure("products a step", 1_200)),
    remedy="TF32",
    overlaps_with=("launch_bound",),
)
SETTINGS = Settings(user_roots=("/home/ann/gpt",))
FINDINGS = Findings((FINDING,), (SkippedRule("first_step", "there is one step"),), 7, 10_000_000)


def findings_json(findings: Findings) -> str:
    session = Session(gpu_step().recording)
    session.analysis, session.recommendations = gpu_step(), findings
    return answer_text(findings_answer(session))


def shown(findings: Findings, width: int, everything: bool = False) -> str:
    file = io.StringIO()
    show = print_all if everything else print_first
    show(findings, SETTINGS, Console(file=file, width=width))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def test_a_finding_says_what_where_why_and_what_to_try() -> None:
    assert (
        shown(FINDINGS, 80, everything=True)
        == """\
Top recommendations: step 10.0 ms
4.00 ms   40.0%  matrix products run in fp32 without tensor cores
                 model.py:12 · mlp.up · sgemm · compile 0/0 · h = self.up(x)
                 fp32_matmul · estimated · they take: 5.00 ms · products a step:
                 1,200 · overlaps launch_bound
                 try: TF32
not judged: first_step: there is one step"""
    )


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_no_line_of_it_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, shown(FINDINGS, width, everything=True).splitlines())) <= width


def test_rules_that_lack_the_same_are_one_line() -> None:
    lacking = tuple(SkippedRule(name, "no rank communicates") for name in ("a", "b", "a"))
    changed = replace(FINDINGS, rules_skipped=(*lacking, *FINDINGS.rules_skipped))
    assert texts.skipped_rules_lines(changed) == (
        "not judged: a, b: no rank communicates",
        "not judged: first_step: there is one step",
    )


def test_a_finding_says_which_ranks_have_it() -> None:
    def on(ranks: str) -> str:
        why = (Figure("on ranks", ranks, FigureUnit.TEXT),)
        return texts.what_text(replace(FINDING, summary="it waits", evidence=why, rank=3))

    assert on("3") == "rank 3: it waits"
    assert on("0, 3") == "2 ranks, rank 3 most: it waits"
    assert texts.what_text(FINDING) == FINDING.summary


def test_each_view_says_on_which_rank_a_finding_is(monkeypatch: pytest.MonkeyPatch) -> None:
    why = (Figure("on ranks", "3", FigureUnit.TEXT),)
    changed = replace(
        FINDINGS, ranked=(replace(FINDING, summary="it waits", evidence=why, rank=3),)
    )
    for view in (html_findings, notebook):
        monkeypatch.setattr(view, "find", lambda analysis: changed)
    shown_texts = (
        html_findings.findings([gpu_step()]),
        notebook.session_html([gpu_step()]),
        shown(changed, 100),
        top_findings(changed, SETTINGS).findings[0].summary,
    )
    assert ["rank 3: it waits" in each for each in shown_texts] == [True] * 4


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        ("void at::native::(anonymous namespace)::fused<float>(int, float*)", "fused<float>"),
        (
            f"void at::native::unrolled_elementwise_kernel<at::native::copy_it, {'x' * 40}>(int)",
            f"unrolled_elementwise_kernel<copy_it, {'x' * 26}\N{HORIZONTAL ELLIPSIS}",
        ),
        (f"triton_poi_{'x' * 80}_7", f"triton_poi_{'x' * 21}\N{HORIZONTAL ELLIPSIS}{'x' * 29}_7"),
    ],
)
def test_a_kernel_has_the_name_that_tells_it_apart(kernel: str, name: str) -> None:
    where = Location(kernel=kernel)
    assert texts.where_text(where, SETTINGS) == name
    (link,) = place_links(where, SETTINGS)
    assert f">{escape(name)}</a>" in link
    assert (f'title="{escape(kernel)}"' in link) == (kernel != name)


def test_five_are_shown_and_the_rest_is_counted() -> None:
    many = replace(FINDINGS, ranked=(FINDING,) * 7)
    text = shown(many, 100)
    assert text.count("try: TF32") == 5
    assert "and 2 more: profiler-ext report --findings" in text
    assert shown(many, 100, everything=True).count("try: TF32") == 7


def test_top_says_how_many_findings_it_leaves_out() -> None:
    file = io.StringIO()
    print_all(replace(FINDINGS, ranked=(FINDING,) * 7), SETTINGS, Console(file=file, width=100), 2)
    assert file.getvalue().count("try: TF32") == 2
    assert "and 5 more: --top 7 prints all" in file.getvalue()


def test_of_very_many_findings_a_hundred_are_printed() -> None:
    text = shown(replace(FINDINGS, ranked=(FINDING,) * 10_000), 100, everything=True)
    assert text.count("try: TF32") == 100
    assert "and 9,900 more: --top 10000 prints all" in text


def test_a_page_and_a_notebook_have_a_hundred_and_say_how_to_see_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = replace(
        FINDINGS, ranked=tuple(replace(FINDING, est_saving_ns=at) for at in range(10_000))
    )
    for view in (html_findings, notebook):
        monkeypatch.setattr(view, "find", lambda analysis: many)
    page, cell = html_findings.findings([gpu_step()]), notebook.session_html([gpu_step()])
    for text, all_of_them in (
        (page, "profiler-ext report --findings"),
        (cell, "session.findings()"),
    ):
        assert text.count("<li>") == 100
        assert "<summary>9,995 more</summary>" in text
        assert f"<p>and 9,900 more: {all_of_them}</p>" in text


def test_a_step_in_training_heads_them_with_the_recorded_one_next_to_it() -> None:
    assert texts.findings_heading(replace(FINDINGS, unprofiled_step_ns=8_040_000)) == (
        "Top recommendations: step 8.04 ms (10.0 ms while profiling)"
    )


def test_without_a_finding_it_says_so() -> None:
    assert texts.findings_heading(replace(FINDINGS, ranked=())) == (
        "No issue above 1% of step time (7 checks applied, 1 did not)"
    )
    assert texts.findings_heading(Findings()) == (
        "No recommendation: no check applies (report --findings lists why)"
    )


def test_where_most_rules_could_not_be_judged_nobody_is_reported_that_all_is_well() -> None:
    lacking = tuple(SkippedRule(f"rule_{at}", "no GPU", rank) for at in range(3) for rank in (0, 1))
    assert texts.findings_heading(Findings(rules_skipped=lacking, rules_evaluated=2)) == (
        "Few recommendations: 2 of 5 checks apply (report --findings lists why)"
    )
    assert texts.findings_heading(Findings(rules_skipped=lacking, rules_evaluated=3)) == (
        "No issue above 1% of step time (3 checks applied, 3 did not)"
    )


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        (Figure("", 2_500_000, FigureUnit.NS), "2.50 ms"),
        (Figure("", 16_000_000, FigureUnit.BYTES), "16 MB"),
        (Figure("", 12, FigureUnit.BYTES), "12 bytes"),
        (Figure("", 0.256, FigureUnit.FRACTION), "25.6%"),
        (Figure("", 4, FigureUnit.TIMES), "4x"),
        (Figure("", "a\n  b", FigureUnit.TEXT), "a b"),
    ],
)
def test_a_figure_has_its_unit(figure: Figure, text: str) -> None:
    assert texts.figure_text(figure) == text


def test_what_is_of_no_step_has_no_part_of_one() -> None:
    once = replace(FINDING, saving_per=SavingPer.PROCESS)
    assert texts.saving_texts(once) == ("4.00 ms", "once")
    assert texts.saving_texts(replace(once, saving_per=SavingPer.WINDOW)) == (
        "4.00 ms",
        "window",
    )
    unknown = replace(once, saving_per=SavingPer.UNKNOWN)
    assert texts.saving_texts(unknown) == ("?", "")
    assert texts.why_text(unknown).startswith("fp32_matmul · saving unknown · ")


def test_the_json_is_of_its_schema_and_has_the_figures() -> None:
    document = json.loads(findings_json(FINDINGS))
    msgspec.convert(document, FindingsAnswer, strict=True)
    (entry,) = document["findings"]
    assert entry["fraction"] == 0.4
    assert entry["page"] == "findings.md#fp32_matmul"
    assert entry["evidence"][0] == {"name": "they take", "value": 5_000_000, "unit": "ns"}
    assert entry["location"]["line"] == 12
    assert document["rules_skipped"] == [
        {"rule": "first_step", "reason": "there is one step", "rank": 0}
    ]
    (step,) = document["session"]["steps"]
    assert (step["step"], step["wall_ns"], step["mfu"]) == (3, 1_000_000, None)


def test_no_name_in_it_steers_a_terminal_or_is_markup() -> None:
    hostile = tuple(
        replace(
            FINDING,
            summary=name,
            remedy=name,
            location=Location(name, 1, name, name, name, name),
            evidence=(Figure(name, name, FigureUnit.TEXT),),
        )
        for name in HOSTILE.values()
    )
    changed = replace(
        FINDINGS, ranked=hostile, rules_skipped=(SkippedRule("x", "".join(HOSTILE.values())),)
    )
    for text in (shown(changed, 100), shown(changed, 100, everything=True), findings_json(changed)):
        assert steering(text) == set()


def test_a_page_and_a_notebook_begin_with_it() -> None:
    for page in (html_text([gpu_step()]), notebook.session_html([gpu_step()])):
        first, breakdown = (
            page.index("Top recommendations: step"),
            page.index("Step time breakdown"),
        )
        assert first < breakdown


def test_a_page_leads_from_a_finding_to_its_line_module_and_kernel() -> None:
    line, module, kernel, *_ = place_links(FINDING.location, SETTINGS)
    assert line == '<a href="#line=model.py%3A12">model.py:12</a>'
    assert module == '<a href="#module=mlp.up">mlp.up</a>'
    assert kernel == '<a href="#kernel=sgemm">sgemm</a>'


def test_the_table_has_the_same_rows_as_the_records() -> None:
    session = Session(gpu_step().recording)
    table = tables.findings(session.analysis)
    assert table["rule"].tolist() == [each.rule for each in session.recommendations.ranked]
    assert table["est_saving_ns"].tolist() == [
        each.est_saving_ns for each in session.recommendations.ranked
    ]
    assert (
        json.loads(table["evidence"][0])[0]["name"]
        == session.recommendations.ranked[0].evidence[0].name
    )


@pytest.mark.parametrize(("limit", "code"), [("10%", 4), ("99", 0)])
def test_the_exit_code_says_whether_more_is_at_stake(
    limit: str, code: int, tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Session(gpu_step().recording).save(tmp_path)
    command = ["report", str(folder), "--findings", "--fail-above", limit]
    assert cli.main(command) == code
    assert capsys.readouterr().out.startswith("Top recommendations: step 760 us\n")


@pytest.mark.parametrize("limit", ["a", "-1%", "101", "nan"])
def test_a_limit_that_is_no_part_is_refused(
    limit: str, tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["report", str(tmp_path), f"--fail-above={limit}"])
    assert "must be a percentage from 0% to 100%: 5%" in capsys.readouterr().err
