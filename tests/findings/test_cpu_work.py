"""The CPU's own work is one finding for each function, and costs what a replay without it saves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from profiler_ext.findings import SavingPer
from profiler_ext.findings.code_of_lines import constant_lines, lines_of_weights
from profiler_ext.findings.cpu_work import places_of
from profiler_ext.findings.facts import facts_of
from profiler_ext.findings.groups import Kind
from profiler_ext.findings.launch_groups import groups_of, launch_groups
from profiler_ext.findings.rules import cpu_work, debug_setting, launch_bound, rebuilt_constant
from profiler_ext.records.analysis import Analysis, Place
from profiler_ext.records.events import Interned
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.vocabulary import Phase
from tests.findings.stepping import MS, US, Script, is_silent, only, placed, trained
from tests.handmade import interned

KERNEL = "vectorized_elementwise_kernel"


def computing(name: str, work_ns: int, kernel_ns: int = 2 * US) -> Analysis:
    """Three steps of 20 launches around an op on the CPU."""
    script = Script()
    for _ in range(3):
        for number in range(20):
            script.launch(KERNEL, kernel_ns)
            if number == 9:
                script.work(name, work_ns, "cpu_op")
        script.end_step()
    return script.analysis()


def test_ops_on_the_cpu_cost_what_the_device_waits_for_them() -> None:
    found = only(cpu_work.RULE, computing("aten::normal_", 5 * MS))
    assert found.summary == "GPU idle: aten::normal_ runs on the CPU"
    assert found.est_saving_ns == pytest.approx(5 * MS, rel=0.01)
    assert found.remedy.startswith("do it on the GPU")


def test_the_work_is_called_by_the_op_that_takes_most_of_it() -> None:
    script = Script()
    for _ in range(3):
        script.launch(KERNEL, 2 * US)
        script.work("aten::clone", 5 * MS, "cpu_op")
        for _ in range(4):
            script.now_ns += 5 * US
            script.work("aten::argmin", 50 * US, "cpu_op")
        script.launch(KERNEL, 2 * US)
        script.end_step()
    found = only(cpu_work.RULE, script.analysis())
    assert found.summary == "GPU idle: aten::clone and other ops run on the CPU"


def test_work_of_two_causes_before_one_launch_adds_up() -> None:
    script = Script()
    for _ in range(3):
        script.launch(KERNEL, 2 * US)
        script.work("cudaMalloc", 5 * MS, "cuda_runtime")
        script.work("aten::clone", 4 * MS, "cpu_op")
        script.launch(KERNEL, 2 * US)
        script.end_step()
    saved_ns = {each.kind: each.saving_ns for each in launch_groups(facts_of(script.analysis()))}
    assert saved_ns[Kind.ALLOCATING] == pytest.approx(5 * MS, rel=0.01)
    assert saved_ns[Kind.COMPUTING] == pytest.approx(4 * MS, rel=0.01)


def test_what_python_does_with_what_it_waited_for_is_work_of_the_cpu() -> None:
    script = Script()
    for _ in range(3):
        for _ in range(20):
            script.launch(KERNEL, 2 * US)
        script.wait("aten::_local_scalar_dense")
        script.now_ns += 5 * MS
        for _ in range(20):
            script.launch(KERNEL, 2 * US)
        script.end_step()
    found = only(cpu_work.RULE, script.analysis())
    assert found.summary == "GPU idle: Python launches nothing for long"
    assert found.est_saving_ns == pytest.approx(5 * MS, rel=0.01)


def test_long_work_is_not_slowed_by_a_recording_unless_the_steps_before_show_it() -> None:
    recorded = computing("aten::normal_", 5 * MS)
    slowed = only(cpu_work.RULE, trained(recorded, *[3 * MS] * 3))
    assert slowed.est_saving_ns < 3 * MS
    as_fast = only(cpu_work.RULE, trained(recorded, *[5_150 * US] * 3))
    assert as_fast.est_saving_ns == pytest.approx(5 * MS, rel=0.02)


def test_views_and_what_the_device_works_across_are_none() -> None:
    assert is_silent(cpu_work.RULE, computing("aten::view", 5 * MS))
    assert is_silent(cpu_work.RULE, computing("aten::normal_", 100 * US, kernel_ns=MS))


def test_what_the_cpu_computes_is_no_launching() -> None:
    """The step is 0.2 ms without the op: a 26th of it, where launch_bound needs a tenth."""
    assert is_silent(launch_bound.RULE, computing("aten::normal_", 5 * MS))


def checked() -> Analysis:
    """Three steps whose ops begin with 100 us of nothing, as one that keeps a stack."""
    script = Script()
    for _ in range(3):
        for _ in range(40):
            script.launch(KERNEL, 2 * US, cost_ns=200 * US)
        script.end_step()
    made = script.analysis()
    settings = replace(made.recording.settings, debug_settings=("anomaly detection",))
    return replace(made, recording=replace(made.recording, settings=settings))


def test_anomaly_detection_costs_the_stacks_that_ops_keep() -> None:
    found = only(debug_setting.RULE, checked())
    assert found.saving_per is SavingPer.STEP
    # Each launch call begins halfway through its op: 100 of 200 us, recorded 1.45 times as slowly
    assert found.est_saving_ns == pytest.approx(40 * 100 * US / 1.45, rel=0.03)


def test_without_it_an_op_may_take_as_long() -> None:
    analysis = checked()
    recording = analysis.recording
    settings = replace(recording.settings, debug_settings=())
    plain = replace(analysis, recording=replace(recording, settings=settings))
    assert is_silent(debug_setting.RULE, plain)
    assert not groups_of(facts_of(plain), Kind.CHECKING)


ROTARY = {
    10: "powers = torch.arange(0, self.channels, 2, device=device)",
    11: "rates = 1.0 / 10000 ** (powers / self.channels)",
    12: "positions = torch.arange(x.shape[1], device=x.device).float()",
    13: "return torch.outer(positions, rates).cos()",
}


@pytest.mark.parametrize(
    ("codes", "lines"),
    [
        (ROTARY, {10, 11, 12, 13}),
        ({1: "mask = torch.ones(n, n, device=x.device).tril()"}, {1}),
        ({1: "total = torch.ones(n)"}, set()),
        ({1: "seen = torch.arange(keys.shape[2], device=q.device) <= self.at"}, set()),
        ({1: "seen = torch.arange(n)[None] < lengths[:, None]"}, set()),
        ({1: "x = self.gate(x)", 2: "y = x * 2"}, set()),
        ({1: "at = torch.arange(n)", 2: "x = x + self.positions(at)"}, {1}),
        ({1: "x = (", 2: ""}, set()),
    ],
)
def test_lines_that_compute_from_sizes_alone(codes: dict[int, str], lines: set[int]) -> None:
    assert constant_lines(codes) == lines


def rebuilding(code: str) -> Analysis:
    script = Script()
    for _ in range(3):
        for _ in range(12):
            script.launch(KERNEL, 2 * US, op="aten::arange")
            script.launch(KERNEL, 2 * US)
        script.end_step()
    where = {"file": "/m.py", "line": 7, "function": "positions", "phase": Phase.FORWARD}
    return placed(script.analysis(), arange={**where, "code": code})


def test_a_constant_that_each_call_computes_is_reported_at_its_line() -> None:
    found = only(rebuilt_constant.RULE, rebuilding("at = torch.arange(n, device=x.device)"))
    assert (found.location.file, found.location.line) == ("/m.py", 7)
    assert "the same tensor is computed 12 times a step (12 launches)" in found.summary
    assert found.est_saving_ns == pytest.approx(12 * 10 * US / 1.45, rel=0.1)
    assert is_silent(rebuilt_constant.RULE, rebuilding("at = self.used(x)"))


@pytest.mark.parametrize(
    ("codes", "lines"),
    [
        (
            {
                1: "w = self.weight.to(x.dtype) * self.scale",
                2: "w = w - self.zeros",
                3: "y = x @ w",
            },
            {1, 2},
        ),
        ({1: "a = -torch.exp(self.A_log.float())"}, {1}),
        ({1: "at = F.interpolate(self.pos_embed, size=x.shape[-2:])"}, {1}),
        ({1: "w = dequantize(self.weight_q, self.scales)"}, {1}),
        ({1: "return x + self.bias"}, set()),
        ({1: "y = self.norm(self.weight)"}, set()),
        ({1: "k = self.key_cache * self.scale"}, set()),
        ({1: "self.scale.mul_(0.9)", 2: "w = self.weight * self.scale"}, set()),
    ],
)
def test_lines_that_compute_with_learned_attributes_alone(
    codes: dict[int, str], lines: set[int]
) -> None:
    assert lines_of_weights(codes) == lines


def test_a_method_that_returns_a_weight_may_call_what_it_is_made_of_anything() -> None:
    codes = {1: "by = self.steps.half()", 2: "return self.numbers.half() * by"}
    assert lines_of_weights(codes) == set()
    assert lines_of_weights(codes, "dequantized_weight") == {1, 2}
    assert lines_of_weights({1: "return self.numbers * x"}, "weight") == set()
    assert lines_of_weights({1: "return self.cache.half()"}, "weight") == set()
    assert lines_of_weights(codes, "weighted") == set()


def test_what_inference_computes_of_weights_alone_is_computed_once_after_loading() -> None:
    step = rebuilding("w = self.weight.float() * self.scale")
    of_module = replace(
        step, places=tuple(replace(each, module="layers.0") for each in step.places)
    )
    found = only(rebuilt_constant.RULE, of_module)
    assert (found.location.line, found.remedy) == (7, rebuilt_constant._ONCE)
    assert found.est_saving_ns == pytest.approx(12 * 10 * US / 1.45, rel=0.1)
    phases = interned(["backward", *["forward"] * (len(of_module.launches) - 1)])
    learning = replace(of_module, launches=replace(of_module.launches, phase=phases))
    assert is_silent(rebuilt_constant.RULE, learning)


def calling_hot_code(line_after: int) -> Analysis:
    """Three steps with 5 ms of code too hot to record; the CPU was at line 7 before it."""
    script = Script()
    for _ in range(3):
        for number in range(20):
            script.launch(KERNEL, 2 * US)
            script.now_ns += 5 * MS * (number == 9)
        script.end_step()
    made = script.analysis()
    idle, rows = made.idle, np.repeat(np.arange(len(made.idle)), 3)
    part = np.tile(np.arange(3), len(idle))
    tenths = np.array([1, 8, 1])[part] * (idle.duration_ns[rows] // 10)
    line = Place(file="/train.py", line=7, function="train", code="drawn = draw(users)")
    after = replace(line, line=line_after)
    of_parts = np.array([0, 1, 0 if line_after == 7 else 2], np.int32)[part]
    at = np.where(idle.duration_ns[rows] > MS, of_parts, 3).astype(np.int32)
    pieces = replace(
        idle,
        step=idle.step[rows],
        device=idle.device[rows],
        span=idle.span[rows],
        start_ns=idle.start_ns[rows] + (part + 7 * (part == 2)) * (idle.duration_ns[rows] // 10),
        duration_ns=tenths,
        cause=Interned(idle.cause.codes[rows], idle.cause.strings),
        cpu_activity=Interned(idle.cpu_activity.codes[rows], idle.cpu_activity.strings),
        place=at,
        cause_place=at,
        places=(line, Place(gap=GapReason.LINE_OF_HOT_CODE), after, replace(line, line=9)),
    )
    return replace(made, idle=pieces)


def test_code_too_hot_to_record_is_at_the_line_that_calls_it() -> None:
    found = only(cpu_work.RULE, calling_hot_code(line_after=7))
    assert (found.location.file, found.location.line) == ("/train.py", 7)
    assert found.summary == "GPU idle: Python launches nothing for long"
    numbers = places_of(facts_of(calling_hot_code(line_after=8)))
    assert set(numbers.tolist()) == {0, 1, 2, 3}  # the CPU came to another line meanwhile
