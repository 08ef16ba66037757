"""The command ``inside``: what it runs, keeps and shows."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from profiler_ext import cli
from profiler_ext.exporters.json_output.documents import InsideAnswer
from profiler_ext.exporters.views.inside import inside_lines
from profiler_ext.inside.child import Result, Task
from profiler_ext.inside.sampling import SamplingResult, SamplingTask
from profiler_ext.records.inside import InsideRoute, KernelPart, MeasuredKernel, MeasuredSite
from profiler_ext.sessions.session import load
from profiler_ext.trials import measuring
from tests.exporters.explained import gpt
from tests.inside.test_knocking_out import chosen

PARTS = (
    KernelPart(
        ("add_3",), (31, 40), 6_000, 4_100.0, 4_000.0, 4_200.0,
        modelled_share=0.31, file="/src/gpt.py", line=48, code="x = x + self.attention(x)",
    ),
    KernelPart(
        ("mean_1", "var_1"), (33,), 4_000, 2_700.0, 2_600.0, 2_800.0,
        modelled_share=0.52, file="/src/layers/normalisation.py", line=1204,
        code="return F.layer_norm(x, self.shape, self.weight, self.bias, self.epsilon)",
    ),
    KernelPart(
        ("mul_7",), (35,), 0, 20.0, -30.0, 90.0, is_load=True,
        modelled_share=0.17, file="/src/gpt.py", line=50, code="y = y * self.scale",
    ),
    KernelPart(
        ("add_3",), (44,), 0, 10.0, -30.0, 90.0, is_store=True,
        file="/src/gpt.py", line=48, code="x = x + self.attention(x)",
    ),
    KernelPart(("convert_1",), (36,), reason="its lines compute addresses, masks or types only"),
)  # fmt: skip
KERNEL = MeasuredKernel(
    "triton_per_fused_add_mul_native_layer_norm_3",
    InsideRoute.KNOCK_OUT,
    launches=24,
    total_ns=240_000,
    step_ns=10_000,
    whole_ns=10_200.0,
    cold_ns=10_200.0,
    warm_ns=6_400.0,
    is_cold=True,
    parts=PARTS,
    sites=(MeasuredSite("digest", 3, ("add_3", "mean_1"), (6_000, 4_000)),),
    text="the text",
)
UNMEASURED = MeasuredKernel(
    "triton_tem_fused_mm_7",
    InsideRoute.KNOCK_OUT,
    launches=1,
    total_ns=80_000,
    step_ns=80_000,
    text="another text",
    reason="the body of a template cannot be taken out",
)


def answer_of(*kernels: MeasuredKernel) -> InsideAnswer:
    return InsideAnswer(
        command=["train.py"],
        query="gpt.py:48",
        device="a GPU",
        duration_ns=1,
        kernels=list(kernels),
        notes=[],
    )


def test_the_screen_at_two_widths() -> None:
    answer = answer_of(KERNEL, UNMEASURED)
    for width in (80, 120):
        lines = list(inside_lines(answer, width))
        gold = Path(__file__).with_name(f"screen_{width}.txt").read_text()
        assert "\n".join(lines) + "\n" == gold
        assert max(map(len, lines)) <= width


def test_what_no_part_saves_is_hidden() -> None:
    assert KERNEL.hidden_ns == 3_400
    more = replace(PARTS[0], saved_ns=20_000.0)
    assert replace(KERNEL, parts=(more,)).hidden_ns == 0
    assert UNMEASURED.hidden_ns is None


class Child:
    """Stands in for the children: one records a session and measures, one samples."""

    def __init__(self, result: Result | None, sampled: SamplingResult | None = None) -> None:
        self.result, self.sampled = result, sampled
        self.tasks: list[Task | SamplingTask] = []

    def __call__(self, child: subprocess.Popen[bytes], *_: object) -> bool:
        """Take the place of the wait for a child, which is a process that does nothing."""
        path = Path(str(child.args[-1]))  # type: ignore[index]
        is_sampling = "profiler_ext.inside.sampling" in child.args  # type: ignore[operator]
        child.wait()
        raw = path.read_bytes()
        if is_sampling:
            task: Task | SamplingTask = msgspec.json.decode(raw, type=SamplingTask)
            result: Result | SamplingResult | None = self.sampled
        else:
            task, result = msgspec.json.decode(raw, type=Task), self.result
            gpt().save(task.session)
        self.tasks.append(task)
        if result is not None:
            Path(task.result).write_bytes(msgspec.json.encode(result))
        return False


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, child: Child, *words: str) -> int:
    started = subprocess.Popen

    def nothing(words: list[str], **given: Any) -> subprocess.Popen[bytes]:
        process = started([sys.executable, "-c", "raise SystemExit(1)"], **given)
        process.args = words
        return process

    monkeypatch.setattr(subprocess, "Popen", nothing)
    monkeypatch.setattr(measuring, "wait_for_result", child)
    return cli.main(["inside", *words])


def test_the_session_and_what_was_measured_are_kept_together(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    child = Child(Result(kernels=[KERNEL], device="a GPU"))
    assert run(monkeypatch, child, "gpt.py:48", "--", "train.py", "--lr", "3") == 0
    (task,) = child.tasks
    assert isinstance(task, Task) and task.knocks_out
    assert (task.words, task.query, task.most) == (["train.py", "--lr", "3"], "gpt.py:48", 10)
    assert load(script / "profile_out").recording.measured == (KERNEL,)
    printed = capsys.readouterr().out
    assert printed.startswith("triton_per_fused_add_mul_native_layer_norm_3\n")
    assert "1 of 1 kernels have measured shares in place of the cost model's" in printed


def test_another_kernel_is_added_and_a_session_stays(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, Child(Result(kernels=[KERNEL])), "gpt.py:48", "--", "train.py")
    recorded = script / "profile_out/session.pt.trace.json.gz"
    before = recorded.stat().st_mtime_ns
    again = replace(KERNEL, step_ns=11_000)
    kernels = [UNMEASURED, again]
    capsys.readouterr()
    words = ("--format", "json", "gpt.py:48", "--", "train.py")
    assert run(monkeypatch, Child(Result(kernels=kernels)), *words) == 0
    printed = capsys.readouterr()
    answer = msgspec.json.decode(printed.out, type=InsideAnswer)
    assert answer.kernels == kernels
    assert "1 kernels are of graphs that the session in profile_out does not have" in " ".join(
        answer.notes
    )
    assert recorded.stat().st_mtime_ns == before
    kept = load(script / "profile_out").recording.measured
    assert kept == (UNMEASURED, again)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("triton_x",), "name the script after --"),
        (("triton_x", "--", "torchrun", "train.py"), "inside measures one process"),
        (("triton_x", "--step-on", "a b", "--", "train.py"), "--step-on a b is not understood"),
    ],
)
def test_what_cannot_be_run_is_refused(
    script: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    problem: str,
) -> None:
    assert run(monkeypatch, Child(None), *words) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (None, "the script ended before it was measured: it exited with 1"),
        (Result(error="no kernel is called so"), "no kernel is called so; what the script"),
    ],
)
def test_a_child_without_a_result_is_an_error_that_names_the_log(
    script: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    result: Result | None,
    problem: str,
) -> None:
    assert run(monkeypatch, Child(result), "gpt.py:48", "--", "train.py") == 2
    printed = capsys.readouterr().err
    assert problem in printed
    assert "inside.log" in printed


SAMPLED = replace(
    KERNEL,
    route=InsideRoute.SAMPLES,
    whole_ns=None,
    cold_ns=None,
    warm_ns=None,
    samples=52_000,
    parts=(
        KernelPart(
            ("add_3",), (31, 40), 6_000, modelled_share=0.31,
            file="/src/gpt.py", line=48, code="x = x + self.attention(x)",
            stalls=(("long_scoreboard", 5_000), ("selected", 1_000)),
        ),
        KernelPart((), (22,), 4_000, reason="index arithmetic", stalls=(("wait", 4_000),)),
    ),
)  # fmt: skip


def test_samples_are_taken_in_a_second_run_of_the_same_kernels(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels = [chosen()]
    child = Child(Result(chosen=kernels, device="a GPU"), SamplingResult(kernels=[SAMPLED]))
    assert run(monkeypatch, child, "--route", "samples", "gpt.py:48", "--", "train.py") == 0
    recorded, sampling = child.tasks
    assert isinstance(recorded, Task) and not recorded.knocks_out
    assert isinstance(sampling, SamplingTask)
    assert (sampling.words, sampling.kernels) == (["train.py"], kernels)
    assert load(script / "profile_out").recording.measured == (SAMPLED,)
    assert "waits for" in capsys.readouterr().out


def test_both_routes_are_kept_beside_each_other(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = Child(Result(kernels=[KERNEL]), SamplingResult(kernels=[SAMPLED]))
    assert run(monkeypatch, child, "--route", "both", "gpt.py:48", "--", "train.py") == 0
    assert load(script / "profile_out").recording.measured == (KERNEL, SAMPLED)


def test_a_driver_that_allows_no_samples_leaves_the_other_route(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = SamplingResult(error="the driver does not let this user sample")
    child = Child(Result(kernels=[KERNEL]), refused)
    assert run(monkeypatch, child, "--route", "both", "gpt.py:48", "--", "train.py") == 0
    assert "not sampled: the driver does not let this user sample" in capsys.readouterr().out
    child = Child(Result(chosen=[chosen()]), refused)
    assert run(monkeypatch, child, "--route", "samples", "gpt.py:48", "--", "train.py") == 2
    assert "the driver does not let this user sample" in capsys.readouterr().err


def test_the_screen_of_samples_says_what_each_line_waits_for() -> None:
    lines = list(inside_lines(answer_of(SAMPLED), 120))
    assert lines[2] == "  by 52,000 samples of its instructions in the step"
    assert lines[3].split() == ["time", "share", "model", "waits", "for", "node", "line", "code"]
    assert lines[4].split()[:6] == ["6.00", "us", "60.0%", "31.0%", "memory", "83%"]
    assert lines[5].split()[-2:] == ["index", "arithmetic"]
