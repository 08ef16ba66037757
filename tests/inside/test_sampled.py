"""Samples of a kernel's instructions, as the time of its lines, nodes and call sites."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import msgspec
import pytest

from profiler_ext.inside import pc_sampling
from profiler_ext.inside.line_table import LineTable
from profiler_ext.inside.pc_sampling import SampledFunction
from profiler_ext.inside.sampled import SampledBinary, sampled_kernels
from profiler_ext.inside.sampling import SamplingResult, SamplingTask, _compiled, _is_steady
from profiler_ext.inside.selection import ChosenKernel
from profiler_ext.records.inside import MeasuredKernel
from profiler_ext.records.kernel_lines import (
    Instruction,
    KernelLine,
    KernelLineEvidence,
    LinePart,
)
from tests.inside.generated import POINTWISE
from tests.inside.test_knocking_out import STEP_NS, chosen

HEAD = POINTWISE.split("\n").index(
    next(each for each in POINTWISE.split("\n") if each.startswith("def triton_kernel("))
)


def line_with(text: str) -> int:
    """The number of the first line that holds a text, from 1."""
    return next(at for at, each in enumerate(POINTWISE.split("\n"), 1) if text in each)


def binary(
    lines: Mapping[int, int | None],
    samples: Mapping[int, Mapping[str, int]],
    *,
    gap: str | None = None,
    text: str = POINTWISE,
    crc: int = 1,
) -> SampledBinary:
    """A function whose instructions are of lines of the kernel's source."""
    # The file that was compiled begins with two more lines than the source.
    instructions = tuple(
        Instruction(offset, "FADD", None if line is None else line + 2, high=7 << 46 | 7 << 49)
        for offset, line in lines.items()
    )
    table = LineTable("triton_kernel", HEAD + 3, instructions, gap)
    return SampledBinary(SampledFunction("triton_kernel", crc, samples), table, "\n\n" + text)


MUL, EXP = line_with("tmp2 = "), line_with("tmp3 = ")
INDEX = line_with("xindex = ")
LINES: Mapping[int, int | None] = {0x00: INDEX, 0x10: MUL, 0x20: EXP}
SAMPLES = {0x00: {"wait": 1000}, 0x10: {"selected": 3000}, 0x20: {"wait": 3000, "selected": 3000}}


def measured(*binaries: SampledBinary, kernel: ChosenKernel | None = None) -> MeasuredKernel:
    (found,) = sampled_kernels([kernel or chosen()], binaries)
    return found


def test_times_are_those_of_the_samples_and_add_up() -> None:
    kernel = measured(binary(LINES, SAMPLES))
    assert [(part.nodes, part.time_ns) for part in kernel.parts] == [
        (("exp",), 6000),
        (("mul",), 3000),
        ((), 1000),
    ]
    assert sum(part.time_ns for part in kernel.parts) == kernel.step_ns == STEP_NS
    assert (kernel.samples, kernel.reason) == (10_000, "")


def test_what_is_of_no_node_is_named_and_is_of_all_nodes_in_proportion() -> None:
    kernel = measured(binary(LINES, SAMPLES))
    assert kernel.parts[-1].reason == LinePart.FRAME.label
    assert kernel.parts[-1].lines == (INDEX,)
    (site,) = kernel.sites
    times = dict(zip(site.nodes, site.times_ns, strict=True))
    assert (times["abs_1"], times["add"]) == (0, 0)
    assert times["exp"] == pytest.approx(STEP_NS * 2 / 3, abs=1)
    assert sum(times.values()) == STEP_NS


def test_the_reasons_of_a_part_add_up_to_its_time() -> None:
    kernel = measured(binary(LINES, SAMPLES))
    assert kernel.parts[0].stalls == (("wait", 3000), ("selected", 3000))
    for part in kernel.parts:
        assert sum(time for _, time in part.stalls) == part.time_ns


def test_the_binaries_of_one_kernel_are_taken_together() -> None:
    other = binary({0x00: MUL}, {0x00: {"selected": 10_000}}, crc=2)
    kernel = measured(binary(LINES, SAMPLES), other)
    assert kernel.samples == 20_000
    assert {part.nodes: part.time_ns for part in kernel.parts}["mul",] == 6500


def test_a_kernel_of_the_same_name_and_another_text_is_another() -> None:
    kernel = measured(binary(LINES, SAMPLES, text=POINTWISE.replace("tmp3", "tmp30")))
    assert (kernel.reason, kernel.sites) == ("none of its instructions was sampled", ())


def test_few_samples_leave_the_cost_model() -> None:
    kernel = measured(binary(LINES, {0x10: {"selected": 999}}))
    assert (kernel.reason, kernel.sites) == ("it has only 999 samples", ())


def test_machine_code_without_lines_leaves_the_cost_model() -> None:
    gap = "its PTX assembles to other code than that which runs"
    kernel = measured(binary(LINES, SAMPLES, gap=gap))
    assert (kernel.reason, kernel.sites) == (gap, ())


@pytest.mark.parametrize("without", [{**LINES, 0x20: None}, {0x00: INDEX, 0x10: MUL}])
def test_time_of_no_known_line_is_shown_and_leaves_the_cost_model(
    without: Mapping[int, int | None],
) -> None:
    kernel = measured(binary(without, SAMPLES))
    assert kernel.reason == "60% of its time is of lines of no known op"
    assert kernel.sites == ()
    assert kernel.parts[0].reason == LinePart.GAP.label
    assert sum(part.time_ns for part in kernel.parts) == STEP_NS


def test_a_line_that_contradicts_its_op_is_not_of_it() -> None:
    kernel = chosen()
    source = kernel.source
    lines = list(source.lines)
    lines[EXP - 1] = KernelLine(LinePart.GAP, KernelLineEvidence.CONTRADICTED, detail="no exp")
    site = replace(kernel.sites[0], source=replace(source, lines=tuple(lines)))
    found = measured(binary(LINES, SAMPLES), kernel=replace(kernel, sites=(site,)))
    assert found.reason == "60% of its time is of lines of no known op"


def test_a_task_carries_kernels_as_they_are() -> None:
    task = SamplingTask(
        words=["train.py"],
        is_module=False,
        step_on="",
        kernels=[chosen()],
        binaries="",
        result="result",
    )
    assert msgspec.json.decode(msgspec.json.encode(task), type=SamplingTask) == task


@pytest.mark.parametrize(
    ("took", "steady"),
    [
        ([100] * 9, False),
        ([900] * 3 + [100] * 7, False),
        ([900, 300, *[100] * 10], True),
        ([100] * 5 + [120] * 5, False),
        ([100, 200] * 30, True),
    ],
)
def test_steps_are_steady_when_two_windows_are_alike(took: list[int], steady: bool) -> None:
    assert _is_steady(list(accumulate(took, initial=7))) is steady


def test_the_child_warms_up_and_says_why_it_cannot_sample(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "weight = torch.nn.Parameter(torch.ones(64))\n"
        "optimizer = torch.optim.SGD([weight])\n"
        "for step in range(500):\n"
        "    print('step', step)\n"
        "    weight.square().sum().backward()\n"
        "    optimizer.step()\n"
    )
    task = SamplingTask(
        words=[str(script)],
        is_module=False,
        step_on="",
        kernels=[],
        binaries="",
        result=str(tmp_path / "result"),
    )
    (tmp_path / "task").write_bytes(msgspec.json.encode(task))
    child = [sys.executable, "-m", "profiler_ext.inside.sampling", str(tmp_path / "task")]
    done = subprocess.run(child, capture_output=True, text=True, check=True)
    result = msgspec.json.decode((tmp_path / "result").read_bytes(), type=SamplingResult)
    steps = done.stdout.count("step")
    assert 10 <= steps <= 62, done.stdout
    assert "libcu" in result.error or "no CUDA context" in result.error
    assert result.kernels == []


def test_a_binary_is_read_where_its_ptx_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Cupti:
        def crc(self, cubin: bytes) -> int:
            return len(cubin)

    monkeypatch.setattr(pc_sampling, "Cupti", Cupti)
    for folder in "abc":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "kernel.cubin").write_bytes(b"code")
    (tmp_path / "b" / "kernel.ptx").write_text("ptx")
    assert _compiled(["kernel"], tmp_path) == {4: tmp_path / "b"}


def test_without_a_line_table_the_reason_is_said() -> None:
    table = LineTable("triton_kernel", 0, (), gap="its PTX is missing")
    function = SampledFunction("triton_kernel", 1, {0: {"selected": 5000}})
    (found,) = sampled_kernels([chosen()], [SampledBinary(function, table, "")])
    assert (found.reason, found.samples) == ("its PTX is missing", 5000)
