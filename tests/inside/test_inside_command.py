"""The command ``inside``: what it runs, keeps and shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from profiler_ext import cli
from profiler_ext.cli import inside as command
from profiler_ext.exporters.json_output.documents import InsideAnswer
from profiler_ext.exporters.views.inside import inside_lines
from profiler_ext.inside.child import Result, Task
from profiler_ext.records.inside import InsideRoute, KernelPart, MeasuredKernel, MeasuredSite
from profiler_ext.sessions.session import load
from tests.exporters.explained import gpt

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
        ("mul_7",), (35,), 0, 20.0, -30.0, 90.0,
        modelled_share=0.17, file="/src/gpt.py", line=50, code="y = y * self.scale",
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
    """Stands in for the child: it records a session, and measures what it is given."""

    def __init__(self, result: Result | None) -> None:
        self.result = result
        self.tasks: list[Task] = []

    def __call__(self, task: Task, folder: Path, log: Path, timeout_s: float) -> str:
        self.tasks.append(task)
        log.write_text("the script's words")
        gpt().save(task.session)
        if self.result is not None:
            Path(task.result).write_bytes(msgspec.json.encode(self.result))
        return "it exited with 1"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, child: Child, *words: str) -> int:
    monkeypatch.setattr(command, "_run", child)
    return cli.main(["inside", *words])


def test_the_session_and_what_was_measured_are_kept_together(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    child = Child(Result(kernels=[KERNEL], device="a GPU"))
    assert run(monkeypatch, child, "gpt.py:48", "--", "train.py", "--lr", "3") == 0
    (task,) = child.tasks
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
