"""Children of ``profiler-ext try``: what they patch, measure and leave alone."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from profiler_ext import cli
from profiler_ext.exporters.json_output.documents import TryAnswer
from profiler_ext.run.program import Program
from profiler_ext.sessions.merging import load
from profiler_ext.trials import BY_NAME
from profiler_ext.trials.child import Measured
from profiler_ext.trials.edits import edits_of
from profiler_ext.trials.measuring import Children, Script, Side, loss_difference
from profiler_ext.trials.trying import breakdown_changes

SCRIPT = Path(__file__).with_name("script.py")
PATCHED = (
    "fused_optimizer",
    "set_to_none",
    "foreach_clipping",
    "no_checkpoints",
    "channels_last",
    "workers",
)
NOTHING = ("prefetch_factor", "tf32", "sdpa_is_causal", "compile_reduce_overhead", "ddp_bucket_cap")
STEPS = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("try")
    shutil.copy(SCRIPT, made / "train.py")
    return made


@pytest.fixture(autouse=True)
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


def children(logs: Path, *arguments: str) -> Children:
    program = Program("train.py", arguments)
    return Children(Script(program, steps=STEPS, copies=True), logs, lambda _: None)


@pytest.fixture(scope="module")
def measured(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Measured, Measured]:
    """The script as it is, and with remedies, in two children."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        made = children(tmp_path_factory.mktemp("logs"))
        return made.measure(()), made.measure((*PATCHED, *NOTHING))


def test_steps_are_timed_once_they_are_steady(measured):
    for each in measured:
        assert (each.error, each.steps_by) == (None, "Optimizer.step")
        assert STEPS <= len(each.took_ns) <= 20 * STEPS
        assert each.warmup_steps in range(10, 61)
        assert not each.on_device


def test_each_remedy_counts_what_it_patched(measured):
    patched = measured[1].patched
    counts = {name: each.count for name, each in patched.items()}
    steps = len(measured[1].took_ns) + measured[1].warmup_steps
    assert counts == {
        **dict.fromkeys(NOTHING, 0),
        "fused_optimizer": 1,
        "workers": 1,
        "channels_last": 1,
        "set_to_none": steps,
        "foreach_clipping": steps,
        "no_checkpoints": steps,
    }


def test_what_patched_nothing_says_why(measured):
    reasons = {name: measured[1].patched[name].reason for name in NOTHING}
    assert reasons["tf32"] == "there is no GPU"
    assert {name: BY_NAME[name].lacks for name, reason in reasons.items() if not reason} == {
        "sdpa_is_causal": "no eager scaled_dot_product_attention has a mask that equals is_causal",
        "compile_reduce_overhead": "the script compiles nothing with Inductor",
        "ddp_bucket_cap": "the script makes no DistributedDataParallel, or sets it already",
    } | (
        {} if reasons["prefetch_factor"] else {"prefetch_factor": "the script makes no DataLoader"}
    )


def test_losses_of_the_first_steps_are_kept(measured):
    base, head = (Side((), [each]) for each in measured)
    assert [len(each.losses) for each in measured] == [10, 10]
    assert measured[0].loss_dtype == "float32"
    assert loss_difference(base, base, "float32") == ("identical", 0.0)
    words, difference = loss_difference(base, head, "float32")
    assert words in ("identical", "within tolerance")
    assert difference is not None and difference <= 1e-4


def test_a_child_with_a_copy_leaves_the_folder_alone(measured, folder):
    assert sorted(each.name for each in folder.iterdir()) == ["train.py"]


def test_the_edit_applies_and_the_script_runs_with_it(measured, folder, tmp_path):
    names = ("fused_optimizer", "set_to_none", "foreach_clipping", "workers", "no_checkpoints")
    patched = measured[1].patched
    edits = edits_of(
        [(BY_NAME[each], patched[each].sites) for each in names], folder / "train.py", folder
    )
    assert edits.by_hand == ("no_checkpoints",)
    changed = [line for line in edits.diff.splitlines() if line[:1] in "+-"]
    workers = BY_NAME["workers"].keyword.value
    assert changed == [
        "--- a/train.py",
        "+++ b/train.py",
        "-optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)",
        "+optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)",
        "-loader = DataLoader(data, batch_size=4)",
        f"+loader = DataLoader(data, batch_size=4, num_workers={workers})",
        "-    optimizer.zero_grad(set_to_none=False)",
        "+    optimizer.zero_grad(set_to_none=True)",
        "-    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)",
        "+    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)",
    ]
    shutil.copy(folder / "train.py", tmp_path)
    applied = subprocess.run(
        ["git", "apply", "-"], input=edits.diff, text=True, cwd=tmp_path, capture_output=True
    )
    assert (applied.returncode, applied.stderr) == (0, "")
    compile((tmp_path / "train.py").read_text(), "train.py", "exec")


COMPILED = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
model = torch.compile(model, backend="eager")
step = torch.compile(optimizer.step, backend="eager")
with torch.no_grad():
    for _ in range(100):
        model(torch.ones(2, 8))
for _ in range(90):
    model(torch.ones(2, 8)).sum().backward()
    step()
    optimizer.zero_grad()
"""


def test_a_compiled_optimizer_ends_steps_and_an_evaluation_before_them_none(folder, tmp_path):
    (folder / "compiled.py").write_text(COMPILED)
    script = Script(Program("compiled.py"), steps=STEPS)
    measured = Children(script, tmp_path, lambda _: None).measure(("compile", "bf16_autocast"))
    (folder / "compiled.py").unlink()
    assert (measured.error, len(measured.took_ns) >= STEPS) == (None, True)
    assert (measured.steps_by, len(measured.losses)) == ("Optimizer.step", 10)
    assert measured.patched["compile"].reason == "the script compiles already"
    assert (measured.patched["bf16_autocast"].count, measured.loss_dtype) == (1, "bfloat16")


def test_a_script_that_raises_is_an_error_with_its_last_line(tmp_path):
    assert children(tmp_path, "--break").measure(()).error == "ValueError: no such flag"
    assert "no such flag" in (tmp_path / "01_as_it_is.log").read_text()


def test_a_child_counts_for_all_remedies_at_once_and_patches_nothing(measured, tmp_path):
    counted = children(tmp_path).applicable((*PATCHED, *NOTHING))
    assert (counted.error, counted.took_ns) == (None, [])
    for name in (*PATCHED, *NOTHING):
        own, patched = counted.patched[name], measured[1].patched[name]
        assert bool(own.count) == (name in PATCHED)
        assert own.count or own.reason == patched.reason
    assert counted.losses == measured[0].losses[: len(counted.losses)]
    assert counted.losses


ENDLESS = """
import os, pathlib, sys, time, torch
pathlib.Path(f"pid{os.environ.get('RANK', '')}").write_text(str(os.getpid()))
layer = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3, foreach=False)
torch.manual_seed(0)
for step in range(10**9):
    layer(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 5 and (len(list(pathlib.Path().glob("out/try_logs/*"))) > 1 or "RANK" in os.environ):
        pathlib.Path("ready").write_text("")
        time.sleep(1000)
"""


def _ends(process: int) -> bool:
    """Wait for the end of a process that is no child of this one."""
    for _ in range(400):
        state = Path(f"/proc/{process}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
@pytest.mark.parametrize(
    ("launcher", "number"),
    [
        pytest.param((), signal.SIGTERM, marks=pytest.mark.whole),
        ((), signal.SIGINT),
        pytest.param(("torchrun", "--standalone"), signal.SIGTERM, marks=pytest.mark.whole),
    ],
)
def test_a_signal_ends_the_child_and_prints_what_was_measured(tmp_path, launcher, number):
    (tmp_path / "train.py").write_text(ENDLESS)
    words = ["-m", "profiler_ext", "try", "-o", "out", "foreach_optimizer", "--", *launcher]
    with subprocess.Popen(
        [sys.executable, *words, "train.py"],
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as command:
        while not (tmp_path / "ready").exists():
            assert command.poll() is None
            time.sleep(0.05)
        command.send_signal(number)
        printed, _ = command.communicate(timeout=60)
    assert _ends(int((tmp_path / f"pid{'0' * bool(launcher)}").read_text()))
    assert command.returncode == -number
    answer = msgspec.json.decode((tmp_path / "out/try.json").read_bytes(), type=TryAnswer)
    (row,) = answer.rows
    assert (row.verdict, row.base_children) == ("undecided", 0 if launcher else 1)
    assert "nothing won so far; undecided: foreach_optimizer" in printed
    assert answer.stopped_by == ("Ctrl-C" if number == signal.SIGINT else "SIGTERM")


def test_the_limit_ends_a_child_and_no_other_is_started(folder, tmp_path, monkeypatch, capsys):
    (folder / "endless.py").write_text("import torch, time\ntime.sleep(1000)\n")
    words = ["try", "--limit", "3", "-o", str(tmp_path / "out"), "set_to_none", "--", "endless.py"]
    assert cli.main(words) == 0
    (folder / "endless.py").unlink()
    assert "set_to_none: undecided: the time of --limit is over" in capsys.readouterr().out
    answer = msgspec.json.decode((tmp_path / "out/try.json").read_bytes(), type=TryAnswer)
    assert (answer.runs, answer.stopped_by) == (1, "the time of --limit is over")


def test_a_recording_has_the_remedies_patched_in(folder, tmp_path):
    made = children(tmp_path)
    sessions = {}
    for remedies in ((), ("no_checkpoints", "fused_optimizer")):
        place = tmp_path / ("+".join(remedies) or "as_it_is")
        place.mkdir()
        assert made.record(place, remedies) is None
        sessions[remedies] = load(place)
    ops = [" ".join(each.table("by_op")["aten_op"].dropna()) for each in sessions.values()]
    assert ["fused_adamw" in each for each in ops] == [False, True]
    assert breakdown_changes(tmp_path / "as_it_is", tmp_path / "no_checkpoints+fused_optimizer")


def test_the_command_writes_an_answer(measured, tmp_path, capsys, monkeypatch):
    def from_above(self: Children, remedies: tuple[str, ...]) -> Measured:
        self.count += 1
        return measured[bool(remedies)]

    monkeypatch.setattr(Children, "measure", from_above)
    out = tmp_path / "out"
    words = ["try", "--pairs", "2", "--steps", str(STEPS), "--copy", "-o", str(out)]
    words += ["--no-diff", "--format", "json", "set_to_none", "tf32", "--", "python", "train.py"]
    assert cli.main(words) == 0
    answer = msgspec.json.decode(capsys.readouterr().out, type=TryAnswer)
    assert json.loads((out / "try.json").read_bytes()) == json.loads(msgspec.json.encode(answer))
    assert [(row.remedies, row.children, row.reason) for row in answer.rows] == [
        (["set_to_none"], 2, None),
        (["tf32"], 1, "there is no GPU"),
    ]
    assert (answer.command, answer.runs, answer.pairs) == (["train.py"], 5, 2)
