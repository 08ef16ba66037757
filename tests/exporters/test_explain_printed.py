"""What explain prints: code, pages for a person, the command, the answer for a program."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from profiler_ext import cli
from profiler_ext.errors import UsageError
from profiler_ext.exporters.json_output.bounds import answer_text
from profiler_ext.records.recording import generated_module
from profiler_ext.sessions.session import Session
from tests.analyses import gpu_step
from tests.exporters.explained import (
    SMALL,
    SUFFIX,
    gpt,
    loaded,
    of,
    rows,
    session_of,
)
from tests.exporters.hostile import hostile_step, steering
from tests.exporters.reported import autotuned
from tests.exporters.test_answers import valid
from tests.gpu_events import FORWARD_KEY

KERNEL = "triton_poi_fused__to_copy_gelu_0"
BODY = f"@triton.jit\ndef {KERNEL}(in_ptr0):\n    pass" + "\n    x = 1" * 500
MODULE = f"{KERNEL} = async_compile.triton('{KERNEL}', '''\nimport triton\n{BODY}\n''')\n"


def with_code() -> Session:
    step = gpu_step()
    path = str(step.recording.graphs[0].output_module)
    kept = generated_module(MODULE, [path])
    return session_of(replace(step, recording=replace(step.recording, generated=(kept,))))


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


def test_code_is_cut_to_a_budget_and_it_is_reported() -> None:
    about = of("model.py:13", with_code())
    document = valid(answer_text(about, 5_000))
    (code,) = document["generated"]
    (cut,) = (cut for cut in document["cuts"] if cut["where"] == "generated.0.text")
    assert (cut["unit"], cut["kept"]) == ("characters", len(code["text"]))
    assert cut["total"] == len(about.generated[0].text) > cut["kept"]
    assert about.generated[0].text.startswith(code["text"])


def test_without_a_step_there_is_nothing_to_explain() -> None:
    with pytest.raises(UsageError, match="no step was profiled, so there is nothing to explain"):
        of("model.py:13", session_of(replace(gpu_step(), steps=())))


# How it looks


def test_the_page_of_a_line() -> None:
    text = session_of(gpu_step()).explain("model.py:13", width=90)
    assert text.startswith(
        """\
model.py:13 · line · in forward
    h = F.gelu(h)
33.3 us a step, 14.2% of the device time; 2 launches a step, 50.0 us with what is fused in
them
forward 13.3 us · backward 20.0 us
"""
    )
    for title in ("Kernels", "Fused with, in the same launches", "ATen ops", "Attribution method"):
        assert f"\n\n{title}\n" in text
    assert "(20.0" not in text


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for name in ("eager_lines.py:58", "(model)", "extern_kernels.mm"):
        assert max(map(len, gpt().explain(name, width=width).splitlines())) <= width


def test_no_name_steers_a_terminal_or_breaks_out_of_markdown() -> None:
    session = session_of(hostile_step())
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


def test_the_command_reads_what_run_wrote_unless_reported_otherwise(
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


def test_a_session_that_stands_last_is_reported_to_stand_first(
    printed: Callable[..., tuple[int, str, str]],
) -> None:
    code, out, err = printed("down", str(SMALL))
    assert (code, out) == (2, "")
    assert err == (
        f"profiler-ext: [usage] there is no session down, and {SMALL} is no name: give DIR and "
        f"then NAME, as in profiler-ext explain {SMALL} down (docs/reference/errors.md#usage)\n"
    )


def test_a_name_that_is_unclear_ends_with_2_and_programs_get_the_candidates(
    printed: Callable[..., tuple[int, str, str]],
) -> None:
    code, out, err = printed("mlp.py")
    assert (code, out) == (2, "")
    message = "profiler-ext: [unclear_name] mlp.py fits 3 things; ask for one of: examples/mlp.py:"
    assert err.startswith(message)
    code, out, err = printed("mlp.py", "--format", "json")
    document = valid(out)
    assert (code, document["answer"], document["is_ambiguous"]) == (2, "candidates", True)
    assert sorted(document["candidates"]) == [f"examples/mlp.py:{line}" for line in (19, 20, 21)]


def test_its_answer_is_of_the_schema() -> None:
    for name in ("eager_lines.py:58", "head", "extern_kernels.mm"):
        document = valid(answer_text(of(name)))
        assert json.dumps(document).isascii()


def test_what_max_autotune_timed_is_said_below_the_kernels_that_are_not_fused() -> None:
    session = session_of(autotuned(gpu_step()))
    about = of(KERNEL, session)
    (tuned,) = (facts for row in about.not_fused for facts in row.autotuned)
    assert (tuned.kernel, tuned.chosen, tuned.others) == ("extern_kernels.addmm", 0, 7)
    assert [(each.kind, each.duration_ns) for each in tuned.choices] == [
        ("library", 91_000),
        ("template", 104_200),
        ("template", None),
    ]
    said = (
        "aten::addmm took 91.0 us alone when it was compiled, the best of 9 templates 104.2 us: "
        "max_autotune chose the library"
    )
    assert said in " ".join(session.explain(KERNEL, width=90).split())
    assert valid(answer_text(about))["not_fused"][0]["autotuned"][0]["others"] == 7
    before = of(KERNEL, session_of(gpu_step()))
    assert [row.autotuned for row in before.not_fused] == [[] for _ in before.not_fused]
