"""The page about one thing adds up with the tables, finds what a name means, and says why not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from profiler_ext import cli
from profiler_ext.errors import UnclearNameError, UsageError
from profiler_ext.exporters.answers.bounds import answer_text
from profiler_ext.exporters.answers.explained import Explanation
from profiler_ext.exporters.explain.against import Earlier
from profiler_ext.exporters.explain.making import explain
from profiler_ext.exporters.explain.subjects import Kind, Subject, subject_called
from profiler_ext.records import Analysis
from profiler_ext.records.generated_code import generated_module
from profiler_ext.sessions.comparing import diff
from profiler_ext.sessions.session import Session, load
from tests.analyses import GPU_PLACES, gpu_step
from tests.exporters.hostile import hostile_step, steering
from tests.exporters.test_answers import valid
from tests.gpu_events import FORWARD_KEY
from tests.gpu_model import MODEL
from tests.test_merging import two_ranks

FIXTURES = Path(__file__).parents[1] / "fixtures" / "h200"
GPT = FIXTURES / "findings" / "tuned_gpt.session.pt.trace.json.gz"
LINE_58 = Subject(Kind.LINE, "/src/benchmarks/eager_lines.py", 58)
SUFFIX = "session.pt.trace.json.gz"
FINDINGS = FIXTURES / "findings"
SMALL = FIXTURES / "mlp.session.pt.trace.json.gz"
LAYOUT = FINDINGS / f"layout_conversion.{SUFFIX}"
LOADER = FIXTURES / "findings" / "data_loader.session.pt.trace.json.gz"


@cache
def loaded(path: Path) -> Session:
    return load(path)


def gpt() -> Session:
    return loaded(GPT)


def told(analysis: Analysis) -> Session:
    session = Session(analysis.recording)
    session.analysis = analysis
    return session


def of(name: str, session: Session | None = None) -> Explanation:
    return explain(session or gpt(), name, top=None)


def rows(table: Any) -> list[dict[str, Any]]:
    plain = table.astype(object).where(table.notna(), None)
    return [dict(row) for row in plain.to_dict("records")]


# What it says adds up


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
    assert sum(each.whole_ns for each in about.kernels) == about.time.inclusive_ns
    for kernel in about.kernels:
        assert 0 < kernel.min_ns <= kernel.median_ns <= kernel.max_ns <= kernel.whole_ns
        assert sum(kernel.site_evidence_ns.values()) == kernel.duration_ns
        assert sum(kernel.phases_ns.values()) == kernel.duration_ns


def test_a_pattern_is_all_that_fit_it() -> None:
    each = [of(f"blocks.{layer}.up").time.duration_ns for layer in range(4)]
    about = of("blocks.*.up")
    assert about.time.duration_ns == sum(each)
    assert about.time.below_ns == 0
    assert sorted(row.duration_ns for row in about.modules) == sorted(each)


def test_a_line_in_layers_alike_tells_them_as_one() -> None:
    up = next(row for row in of("eager_lines.py:58").modules if row.module == "blocks.*.up")
    assert (up.modules, up.duration_ns) == (4, of("blocks.*.up").time.duration_ns)


def test_ranks_are_summed_and_steps_are_told_of_each() -> None:
    ranks = two_ranks()
    alone = [explain(each, "(model)", None) for each in ranks.sessions]
    both = explain(ranks, "(model)", None)
    assert both.time.duration_ns == sum(each.time.duration_ns for each in alone)
    assert both.steps == [step for each in alone for step in each.steps]
    assert len({step.rank for step in both.steps}) == 2


def test_what_top_leaves_out_is_said() -> None:
    about, whole = explain(gpt(), "eager_lines.py:58", top=2), of("eager_lines.py:58")
    cut = next(cut for cut in about.cuts if cut.where == "kernels")
    assert (cut.kept, cut.of) == (2, len(whole.kernels))
    kept = sum(each.duration_ns for each in about.kernels)
    assert kept + (cut.left_out_ns or 0) == about.time.duration_ns
    with pytest.raises(UsageError, match="cannot show the top 0 rows"):
        explain(gpt(), "head", top=0)


# What a name means


@pytest.mark.parametrize(
    ("name", "subject"),
    [
        ("eager_lines.py:58", LINE_58),
        (
            "./benchmarks/eager_lines.py:58",
            Subject(Kind.LINE, "/src/benchmarks/eager_lines.py", 58),
        ),
        ("line:eager_lines.py:58", LINE_58),
        ("(model)", Subject(Kind.MODULE, "")),
        ("0.up", Subject(Kind.MODULE, "blocks.0.up")),
        ("blocks.*.up", Subject(Kind.MODULE, "blocks.*.up")),
        ("fused_gelu_view_2", Subject(Kind.KERNEL, "triton_poi_fused_gelu_view_2")),
    ],
)
def test_a_name_may_be_the_end_of_a_path_or_a_part_of_a_kernel(name: str, subject: Subject) -> None:
    assert subject_called(name, gpt().analyses) == subject


def test_a_name_of_several_things_lists_them_largest_first() -> None:
    with pytest.raises(UnclearNameError) as caught:
        of("up")
    assert caught.value.is_ambiguous
    assert set(caught.value.candidates) == {f"blocks.{layer}.up" for layer in range(4)}
    times = [of(each).time.duration_ns for each in caught.value.candidates]
    assert times == sorted(times, reverse=True)
    assert str(caught.value).startswith("up fits 4 things; ask for one of: blocks.")


def test_a_file_lists_its_lines_with_time() -> None:
    with pytest.raises(UnclearNameError) as caught:
        of("eager_lines.py")
    table = gpt().by_line()
    lines = table[table["file"] == "/src/benchmarks/eager_lines.py"]["line"].tolist()
    assert caught.value.candidates == tuple(f"eager_lines.py:{line}" for line in lines)


def test_names_that_are_alike_when_short_are_told_whole() -> None:
    at = next(n for n, place in enumerate(GPU_PLACES) if place.line == 13)
    other = replace(GPU_PLACES[at], file="/elsewhere/gpt/model.py")
    places = (*GPU_PLACES[:at], other, *GPU_PLACES[at + 1 :])
    session = told(replace(gpu_step(), places=places))
    with pytest.raises(UnclearNameError, match="fits 2 things") as caught:
        of("model.py:13", session)
    for name in caught.value.candidates:
        assert of(name, session).subject.file == name.removesuffix(":13")
    assert set(caught.value.candidates) == {f"{MODEL}:13", "/elsewhere/gpt/model.py:13"}


def test_an_unknown_name_is_answered_with_close_ones() -> None:
    with pytest.raises(UnclearNameError) as caught:
        of("Blocs.0.up")
    assert not caught.value.is_ambiguous
    assert caught.value.candidates[0] == "blocks.0.up"
    with pytest.raises(UnclearNameError, match="'zzz' in the session; name one as report --by"):
        of("zzz")


# Why there is no time


def test_a_line_without_time_says_why() -> None:
    loader = loaded(LOADER)
    waits = of("flaws.py:298", loader)
    assert (waits.time.duration_ns, waits.time.launches) == (0, 0)
    assert waits.silence == (
        "it launches nothing: while the CPU was there the device waited for 9.28 ms a step"
    )
    assert [each.rule for each in waits.findings] == ["data_loader"]
    calls = of("findings.py:157", loader)
    assert calls.silence is not None
    assert calls.silence.startswith("it launches nothing itself: it calls lines that do, which to")
    nothing = of("flaws.py:9999", loader)
    assert nothing.silence is not None
    assert "the nearest lines of flaws.py with time are flaws.py:319" in nothing.silence


def test_a_line_whose_ops_launch_nothing_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    step = gpu_step()
    graph, *others = step.recording.graphs
    node = graph.nodes[0]
    frame = replace(node.lineage.stack[-1], line=99)
    lost = replace(node, name="gone", target="aten.view.default")
    lost = replace(lost, lineage=replace(node.lineage, stack=(frame,)))
    graphs = (replace(graph, nodes=(*graph.nodes, lost)), *others)
    changed = replace(step, recording=replace(step.recording, graphs=graphs))
    assert of("model.py:99", told(changed)).silence == (
        "no kernel computes its ops (aten.view.default): they only change how memory is seen, or "
        "the compiler took them away"
    )


# What changed


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
    assert verdict in about.against.in_words[0]
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


# Generated code

KERNEL = "triton_poi_fused__to_copy_gelu_0"
BODY = f"@triton.jit\ndef {KERNEL}(in_ptr0):\n    pass" + "\n    x = 1" * 500
MODULE = f"{KERNEL} = async_compile.triton('{KERNEL}', '''\nimport triton\n{BODY}\n''')\n"


def with_code() -> Session:
    step = gpu_step()
    path = str(step.recording.graphs[0].output_module)
    kept = generated_module(MODULE, [path])
    return told(replace(step, recording=replace(step.recording, generated=(kept,))))


def test_the_code_of_a_kernel_and_which_nodes_of_it_are_meant() -> None:
    about = of("model.py:13", with_code())
    (code,) = about.generated
    assert (code.kernel, code.module) == (KERNEL, f"/cache/inductor/{FORWARD_KEY}.py")
    assert code.text == f"import triton\n{BODY}"
    assert [(n.name, n.target, n.outputs) for n in code.own_nodes] == [
        ("gelu", "aten.gelu.default", [])
    ]
    assert code.other_nodes == 1


def test_a_page_shows_the_code_from_its_function_on() -> None:
    shown = with_code().explain("model.py:13").partition(f"Generated code of {KERNEL}\n")[2]
    assert shown.startswith(f"    @triton.jit\n    def {KERNEL}(in_ptr0):\n")
    assert "import triton" not in shown
    assert shown.count("x = 1") == 37
    assert "(463 more lines: --format json)\n" in shown
    assert "its part, in the first launch: gelu" in shown and "; besides, 1 nodes of oth" in shown


def test_code_is_cut_to_a_budget_and_it_is_said() -> None:
    about = of("model.py:13", with_code())
    document = valid(answer_text(about, 5_000))
    (code,) = document["generated"]
    (cut,) = (cut for cut in document["cuts"] if cut["where"] == "generated.0.text")
    assert (cut["unit"], cut["kept"]) == ("characters", len(code["text"]))
    assert cut["of"] == len(about.generated[0].text) > cut["kept"]
    assert about.generated[0].text.startswith(code["text"])


def test_without_a_step_there_is_nothing_to_explain() -> None:
    with pytest.raises(UsageError, match="no step was profiled, so there is nothing to explain"):
        of("model.py:13", told(replace(gpu_step(), steps=())))


# How it looks


def test_the_page_of_a_line() -> None:
    text = told(gpu_step()).explain("model.py:13", width=90)
    assert text.startswith(
        """\
model.py:13 · line · in forward
    h = F.gelu(h)
33.3 us a step, 14.2% of the device time; 2 launches a step, which take 50.0 us whole
forward 13.3 us · backward 20.0 us
"""
    )
    for title in ("Kernels", "Fused with, in the same launches", "ATen ops", "How that is known"):
        assert f"\n\n{title}\n" in text
    assert "(20.0" not in text


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for name in ("eager_lines.py:58", "(model)", "extern_kernels.mm"):
        assert max(map(len, gpt().explain(name, width=width).splitlines())) <= width


def test_no_name_steers_a_terminal_or_breaks_out_of_markdown() -> None:
    session = told(hostile_step())
    named = {row["kernel"] for row in rows(session.by_kernel())} | {"(model)"}
    for name in named:
        for form in ("text", "md", "json"):
            text = session.explain(f"kernel:{name}" if name != "(model)" else name, form)
            assert steering(text) == set()
            if form == "md":
                assert re.search(r"(?<!\\)<", text) is None


def test_a_format_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no format 'csv'; ask for text, json, md"):
        gpt().explain("head", "csv")


# The command


@pytest.fixture
def printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "profile_out").mkdir()
    (tmp_path / "profile_out" / SUFFIX).symlink_to(SMALL)

    def run(*words: str) -> tuple[int, str, str]:
        code = cli.main(["explain", *words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def test_the_command_reads_what_run_wrote_unless_told_otherwise(
    printed: Callable[..., tuple[int, str, str]],
) -> None:
    assert printed("down") == printed(str(SMALL), "down")
    code, out, err = printed("down", "--format", "md")
    assert (code, err) == (0, "")
    assert out.startswith("# down · module · Linear\n\n- 22.0 us a step, 28.3% of the device time")
    assert (
        f"\n## Since {SMALL}\n".replace("_", r"\_")
        in printed("down", "--format", "md", "--against", str(SMALL))[1]
    )
    document = valid(printed("u*", "--format", "json", "--budget", "9000")[1])
    assert document["subject"]["name"] == "u*"
    assert document["time"]["duration_ns"] == of("up", loaded(SMALL)).time.duration_ns


def test_a_session_that_stands_last_is_told_to_stand_first(
    printed: Callable[..., tuple[int, str, str]],
) -> None:
    code, out, err = printed("down", str(SMALL))
    assert (code, out) == (2, "")
    assert err == (
        f"profiler-ext: [usage] there is no session down, and {SMALL} is no name: give DIR and "
        f"then NAME, as in profiler-ext explain {SMALL} down\n"
    )


def test_a_name_that_is_unclear_ends_with_2_and_programs_get_the_candidates(
    printed: Callable[..., tuple[int, str, str]],
) -> None:
    code, out, err = printed("mlp.py")
    assert (code, out) == (2, "")
    said = "profiler-ext: [unclear_name] mlp.py fits 3 things; ask for one of: examples/mlp.py:"
    assert err.startswith(said)
    code, out, err = printed("mlp.py", "--format", "json")
    document = valid(out)
    assert (code, document["answer"], document["is_ambiguous"]) == (2, "candidates", True)
    assert sorted(document["candidates"]) == [f"examples/mlp.py:{line}" for line in (19, 20, 21)]


def test_its_answer_is_of_the_schema() -> None:
    for name in ("eager_lines.py:58", "head", "extern_kernels.mm"):
        document = valid(answer_text(of(name)))
        assert json.dumps(document).isascii()
