"""What is measured of a kernel whose variants take known times."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
import torch

from profiler_ext.inside import knocking_out
from profiler_ext.inside.knocking_out import knock_out
from profiler_ext.inside.launches import Launch
from profiler_ext.inside.selection import ChosenKernel, SiteSource
from profiler_ext.inside.timing import Launching, Times
from profiler_ext.records.inside import MeasuredKernel
from profiler_ext.records.kernel_lines import (
    KernelLine,
    KernelLineEvidence,
    KernelSource,
    LinePart,
)
from profiler_ext.records.provenance import CallSite
from profiler_ext.records.vocabulary import SiteKind
from tests.inside.generated import POINTWISE

NODES = {"tmp0": "abs_1", "tmp1": "mul", "tmp2": "mul", "tmp3": "exp", "tmp4": "abs_1"}
NODES |= {"tmp5": "add", "tl.store": "add"}
STEP_NS = 10_000


def line_of(text: str) -> KernelLine:
    begin = text.strip().partition("(" if "tl.store" in text else " ")[0]
    if begin in NODES:
        return KernelLine(LinePart.NODE, KernelLineEvidence.CONFIRMED, (NODES[begin],))
    return KernelLine(LinePart.FRAME, KernelLineEvidence.FORM)


def chosen(part: LinePart | None = None) -> ChosenKernel:
    lines = [line_of(each) for each in POINTWISE.split("\n")]
    if part is not None:
        lines[0] = KernelLine(part, KernelLineEvidence.OWN)
    source = KernelSource("/module.py", "triton_kernel", ("buf0",), POINTWISE, tuple(lines))
    nodes = ("mul", "exp", "abs_1", "add")
    site = CallSite(4, "4", SiteKind.TRITON, "triton_kernel", None, nodes, (3, 1, 2, 2))
    return ChosenKernel((SiteSource("digest", site, source),), 3, 30_000, STEP_NS, {})


class Kernel:
    """A compiled variant."""

    def __init__(self) -> None:
        self.runs: list[Sequence[object]] = []

    def run(self, *given: object, stream: int) -> None:
        self.runs.append(given)


class FakeTimer:
    """Times each variant as a test says, in the two states of the cache."""

    times_ns: Mapping[str, int]
    whole = (10_500, 4_000)

    def times(self, launching: Launching, step_ns: float) -> tuple[Times, dict[str, float]]:
        whole, *others = launching
        by_name = {whole: [self.whole[0]] * 20}
        by_name |= {name: [self.times_ns[name.rpartition("_")[2]]] * 20 for name in others}
        return Times(by_name, is_cold=True), dict(zip(("cold", "warm"), self.whole, strict=True))


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knocking_out, "Timer", FakeTimer)
    monkeypatch.setattr(knocking_out, "_compiling", lambda name, text: Kernel())
    stream = types.SimpleNamespace(cuda_stream=7)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


def launch() -> Launch:
    config = types.SimpleNamespace(kwargs={"XBLOCK": 256}, num_warps=4, num_stages=1)
    kernel = types.SimpleNamespace(launchers=[types.SimpleNamespace(config=config)])
    return Launch(kernel, (), (), {})


def measured(times_ns: Sequence[int], kernel: ChosenKernel | None = None) -> MeasuredKernel:
    # Parts in the order of the kernel's lines: abs_1, its load, mul, exp, add, the store of add
    FakeTimer.times_ns = dict(zip("012345", times_ns, strict=True))
    kernel = kernel or chosen()
    said: list[str] = []
    (found,) = knock_out([kernel], {POINTWISE.strip(): launch()}, math.inf, said.append)
    assert said == ["[1/1] triton_kernel"]
    return found


@pytest.mark.usefixtures("on_gpu")
def test_shares_are_what_each_part_saves_scaled_to_the_launch_in_the_step() -> None:
    found = measured([10_500, 8_500, 6_500, 10_500, 9_500, 9_500])
    assert found.reason == ""
    assert {(*each.nodes, each.is_load, each.is_store): each.time_ns for each in found.parts} == {
        ("abs_1", False, False): 0,
        ("abs_1", True, False): 2_500,
        ("mul", False, False): 5_000,
        ("exp", False, False): 0,
        ("add", False, False): 1_250,
        ("add", False, True): 1_250,
    }
    assert found.hidden_ns == 2_500
    (site,) = found.sites
    assert (site.graph, site.call_site) == ("digest", 4)
    assert dict(zip(site.nodes, site.times_ns, strict=True)) == {
        "mul": 5_000,
        "exp": 0,
        "abs_1": 2_500,
        "add": 2_500,
    }
    assert sum(site.times_ns) == sum(each.time_ns for each in found.parts) == STEP_NS
    assert [each.modelled_share for each in found.parts] == [
        *(3 / 8, None, 2 / 8, None),
        *(2 / 8, 1 / 8),
    ]


@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize(
    ("times_ns", "reason"),
    [
        ([10_000] * 6, "its lines hide behind each other"),
        ([10_600, 10_600, 10_700, 10_500, 10_900, 10_600], "its lines hide behind each other"),
    ],
)
def test_the_model_stays_where_no_part_takes_the_time(times_ns: Sequence[int], reason: str) -> None:
    found = measured(times_ns)
    assert found.reason.startswith(reason)
    assert found.sites == ()


@pytest.mark.usefixtures("on_gpu")
def test_the_model_stays_where_the_kernel_alone_takes_another_time() -> None:
    found = measured([1_000] * 6, replace(chosen(), step_ns=8_000))
    assert found.reason == "alone it takes another time than in the step"


@pytest.mark.usefixtures("on_gpu")
def test_templates_and_kernels_of_the_program_keep_the_model() -> None:
    found = measured([1_000] * 6, chosen(LinePart.TEMPLATE))
    assert (found.reason, found.sites) == ("the body of a template cannot be taken out", ())
    found = measured([1_000] * 6, chosen(LinePart.PROGRAM))
    assert found.reason == "the program's own kernel has no lines of the model to take out"


@pytest.mark.usefixtures("on_gpu")
def test_a_part_that_does_not_compile_keeps_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiling(name: str, text: str) -> Kernel:
        kernel = Kernel()
        if name.endswith("_without_3"):
            monkeypatch.setattr(kernel, "run", None)
        return kernel

    monkeypatch.setattr(knocking_out, "_compiling", compiling)
    found = measured([8_500, 8_500, 6_500, 10_500, 8_500, 10_500])
    assert found.reason == "1 of 6 parts could not be measured"
    (lost,) = (each for each in found.parts if each.reason)
    assert lost.nodes == ("exp",)
    assert lost.reason.startswith("it does not compile without it: TypeError")


@pytest.mark.usefixtures("on_gpu")
def test_a_kernel_without_a_launch_or_without_time_says_so() -> None:
    (unseen,) = knock_out([chosen()], {}, math.inf, len)
    assert unseen.reason == "no launch of it was seen in Python"
    (late,) = knock_out([chosen()], {POINTWISE.strip(): launch()}, 0.0, len)
    assert late.reason == "the time of --limit was over"
    assert [each.saved_ns for each in late.parts] == [None] * 6


def test_the_interval_of_a_difference_is_that_of_its_median() -> None:
    whole = [100 + at % 3 for at in range(40)]
    saved = Times({"whole": whole, "out": [80] * 40}, is_cold=False).saved("whole", "out")
    assert (saved.low_ns, saved.value_ns, saved.high_ns) == (20, 21, 22)
    noise = Times({"whole": whole, "out": whole[1:] + whole[:1]}, is_cold=False)
    assert noise.saved("whole", "out").low_ns < 0 < noise.saved("whole", "out").high_ns
