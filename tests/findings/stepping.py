"""How a test of a rule writes a step by hand: what the CPU does, and what a device runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from profiler_ext.attribution import attribute
from profiler_ext.exporters.views.findings import short_remedy
from profiler_ext.findings import Finding, Findings, Rule
from profiler_ext.findings.ranking import judge
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Device, Thread
from profiler_ext.records.provenance import GraphInstance
from profiler_ext.records.recording import Recording, Settings
from profiler_ext.records.vocabulary import Phase
from tests.handmade import Mark, interned, trace

CPU = Thread(100, 100)
STREAM = Thread(0, 7)
MS, US = 1_000_000, 1_000
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, float>"
Launch = tuple[str, str, Phase]  # kernel, op after ``aten::``, phase
REMEDY_COLUMNS = 58  # what the first screen has for a remedy, of 80


@dataclass
class Script:
    """A trace in the making: a clock of the CPU, one of the device, and what both did.

    Attributes:
        now_ns: when the CPU does the next thing.
        free_ns: when the device has run all that it was given.
        marks: the events so far.
    """

    now_ns: int = 0
    free_ns: int = 0
    marks: list[Mark] = field(default_factory=list)
    _correlation: int = 0
    _step_ns: int = 0
    _number: int = 0

    def launch(
        self,
        kernel: str,
        duration_ns: int,
        *,
        op: str = "aten::mul",
        cost_ns: int = 10 * US,
        category: str = "kernel",
        call: str = "cudaLaunchKernel",
        **args: Any,
    ) -> None:
        """Let an op launch a kernel, which runs when the device is free."""
        self._correlation += 1
        number = {"correlation": self._correlation, "External id": self._correlation}
        self.marks.append(
            Mark(op, "cpu_op", CPU, self.now_ns, cost_ns, {"External id": self._correlation})
        )
        self.marks.append(
            Mark(call, "cuda_runtime", CPU, self.now_ns + cost_ns // 2, cost_ns // 4, number)
        )
        start_ns = max(self.free_ns, self.now_ns + cost_ns)
        place = {"device": 0, "stream": 7}
        self.marks.append(
            Mark(kernel, category, STREAM, start_ns, duration_ns, number | place | args)
        )
        self.now_ns += cost_ns
        self.free_ns = start_ns + duration_ns

    def wait(self, op: str | None = None) -> None:
        """Let the CPU wait until the device is done, inside an op if one is named."""
        end_ns = max(self.now_ns, self.free_ns) + 2 * US
        wait = Mark("cudaStreamSynchronize", "cuda_runtime", CPU, self.now_ns, end_ns - self.now_ns)
        self.marks.append(wait)
        if op is not None:
            self.marks.append(replace(wait, name=op, category="cpu_op"))
        self.now_ns = end_ns

    def work(self, name: str, duration_ns: int, category: str = "user_annotation") -> None:
        """Let the CPU do something else."""
        self.marks.append(Mark(name, category, CPU, self.now_ns, duration_ns))
        self.now_ns += duration_ns

    def end_step(self) -> None:
        """End the step that began when the last one ended."""
        name = f"ProfilerStep#{self._number}"
        self.marks.append(
            Mark(name, "user_annotation", CPU, self._step_ns, self.now_ns - self._step_ns)
        )
        self._step_ns, self._number = self.now_ns, self._number + 1

    def analysis(self, graphs: tuple[GraphInstance, ...] = ()) -> Analysis:
        """Return what attribution finds in it."""
        marks = sorted(self.marks, key=lambda mark: (mark.start_ns, -mark.duration_ns))
        made = trace(marks, (Device(0, "NVIDIA H200", (("numSms", "132"),)),))
        return attribute(Recording(made, graphs, Settings(torch_version="2.11.0")))


def steps(
    kernel_ns: int, count: int = 50, kernel: str = "vectorized_elementwise_kernel", **words: object
) -> Script:
    """Three steps of many short kernels, each followed by a wait."""
    script = Script()
    for _ in range(3):
        for _ in range(count):
            script.launch(kernel, kernel_ns, **words)
        script.wait()
        script.end_step()
    return script


def trained(analysis: Analysis, *before_ns: int, on_device: bool = False) -> Analysis:
    """Return an analysis whose steps took so long before they were recorded."""
    recording = analysis.recording
    settings = replace(
        recording.settings, unprofiled_steps_ns=before_ns, unprofiled_steps_on_device=on_device
    )
    return replace(analysis, recording=replace(recording, settings=settings))


def placed(analysis: Analysis, **places: dict[str, Any]) -> Analysis:
    """Return an analysis in which the places of an op, ``aten::`` left out, have these fields."""
    changed = tuple(
        replace(place, **places.get((place.aten_op or "").partition("::")[2], {}))
        for place in analysis.places
    )
    return replace(analysis, places=changed)


def judged(rule: Rule, analysis: Analysis) -> Findings:
    """Return what one rule says of an analysis, whose remedies fit the first screen."""
    findings = judge(analysis, (rule,))
    for each in findings.ranked:
        assert len(short_remedy(each.remedy, REMEDY_COLUMNS)) <= REMEDY_COLUMNS, each.remedy
    return findings


def only(rule: Rule, analysis: Analysis) -> Finding:
    """Return the one finding of a rule."""
    (finding,) = judged(rule, analysis).ranked
    return finding


def is_silent(rule: Rule, analysis: Analysis) -> bool:
    """Tell whether a rule was judged and found nothing."""
    findings = judged(rule, analysis)
    return findings.ranked == () and findings.rules_evaluated == 1


def made(*launches: Launch, count: int = 1, idle_us: int = 0, **places: dict[str, Any]) -> Analysis:
    """Three steps that wait for the device, each kernel with 300 us."""
    script = Script()
    for _ in range(3):
        for kernel, op, _ in launches * count:
            script.launch(kernel, 300 * US, op=f"aten::{op}")
        script.wait()
        script.now_ns += idle_us * US
        script.end_step()
    analysis = placed(script.analysis(), **places)
    phases = interned([phase.value for *_, phase in launches * count] * 3)
    return replace(analysis, launches=replace(analysis.launches, phase=phases))


def forward(op: str, kernel: str = ELEMENTWISE) -> Launch:
    """An op's launch in the forward."""
    return kernel, op, Phase.FORWARD


def backward(op: str, kernel: str = ELEMENTWISE) -> Launch:
    """An op's launch in the backward."""
    return kernel, op, Phase.BACKWARD


def at(line: int, op: str | None = None, phase: Phase = Phase.FORWARD, **more: Any) -> dict:
    """The place of a launch."""
    own = {"file": "/model.py", "line": line, "phase": phase, "function": "forward"} | more
    return own if op is None else own | {"aten_op": f"aten::{op}"}
