"""The JSON answer about one line, module or kernel, as types."""

from __future__ import annotations

from typing import Annotated

import msgspec

from profiler_ext.exporters.json_output import comparison
from profiler_ext.exporters.json_output.documents import (
    FindingEntry,
    GapRow,
    Part,
    SessionAnswer,
    about,
)

_Phases = Annotated[dict[str, int], about("phase to time; a phase without time is left out")]


class SubjectFacts(Part, frozen=True, kw_only=True, omit_defaults=True):
    """What is explained."""

    kind: Annotated[str, about("line, module or kernel")]
    name: Annotated[str, about("what finds it again: FILE:LINE, a module's path, a kernel")]
    file: str | None = None
    line: int | None = None
    code: Annotated[str | None, about("text of the line")] = None
    function: str | None = None
    module: str | None = None
    module_class: str | None = None
    kernel: str | None = None


class TimeFacts(Part, frozen=True, kw_only=True):
    """Its device time in the profiled steps, of all ranks."""

    duration_ns: Annotated[int, about("its part of its launches")]
    fraction: Annotated[float | None, about("part of all device time of the steps")]
    rank_steps: Annotated[int, about("over how many steps it sums, each rank's for itself")]
    per_step_ns: Annotated[float | None, about("the mean of a step, on one rank")]
    inclusive_ns: Annotated[int, about("the total time of those launches")]
    launches: int
    phases_ns: _Phases
    submodules_ns: Annotated[int | None, about("of a module, the part of its submodules")] = None
    callees_ns: Annotated[int | None, about("of a line, time of other lines that it calls")] = None


class StepTime(Part, frozen=True, kw_only=True):
    """Its device time in one step."""

    rank: int
    step: int
    duration_ns: int
    phases_ns: _Phases


class PartRow(Part, frozen=True, kw_only=True, omit_defaults=True):
    """Time of one line, module or op, within what is explained or within its kernels."""

    file: str | None = None
    line: int | None = None
    code: str | None = None
    module: Annotated[str | None, about("numbers of layers alike are `*`")] = None
    modules: Annotated[int, about("how many modules that is")] = 1
    aten_op: str | None = None
    gap: str | None = None
    duration_ns: int
    launches: int
    phases_ns: _Phases


class KernelRow(Part, frozen=True, kw_only=True):
    """A kernel that computes it, or a part of it."""

    kernel: Annotated[str, about("Inductor's name, or the event's")]
    name: Annotated[str, about("the name of the device's event")]
    kind: str
    launches: int
    duration_ns: Annotated[int, about("the part of what is explained")]
    total_ns: Annotated[int, about("all of these launches")]
    min_ns: Annotated[int, about("the shortest of them")]
    median_ns: Annotated[int, about("their median, as by_kernel has it")]
    max_ns: Annotated[int, about("the longest of them")]
    phases_ns: _Phases
    site_evidence_ns: Annotated[dict[str, int], about("its part by the rule that tied it")]


class Roofline(Part, frozen=True, kw_only=True):
    """How near to its roofline it is, by the table's columns of those names."""

    known_ns: Annotated[int, about("its time of which bytes or operations are known")]
    est_bytes: int | None
    est_flops: int | None
    est_gb_per_s: float | None
    est_tflop_per_s: float | None
    est_attainable_tflop_per_s: float | None
    est_peak_fraction: float | None
    unit: str | None
    bound: str | None
    roofline_ns: int | None
    could_save_ns: int | None


class NodeFacts(Part, frozen=True, kw_only=True):
    """An FX node that a kernel computes."""

    name: str
    target: str
    outputs: Annotated[list[str], about("dtype and sizes of each tensor: bf16[8, 1024]")]


class Generated(Part, frozen=True, kw_only=True):
    """The code that Inductor generated for one of its kernels."""

    kernel: str
    own_nodes: Annotated[list[NodeFacts], about("what of its first launch is explained here")]
    other_nodes: Annotated[int, about("how many nodes of other lines it computes too")]
    module: Annotated[str, about("path of the generated module that holds it")]
    text: str


class ChoiceRow(Part, frozen=True, kw_only=True):
    """One way to compute an op that max_autotune timed when the graph was compiled."""

    name: Annotated[str, about("the library's function, or the template")]
    kind: Annotated[str, about("library, template or graph (a decomposition)")]
    config: Annotated[str, about("of a template, in torch's words")]
    duration_ns: Annotated[int | None, about("alone, as torch measured it; null where it failed")]


class AutotunedFacts(Part, frozen=True, kw_only=True):
    """What max_autotune chose among for one of the two kernels."""

    kernel: Annotated[str, about("the call site's")]
    choices: Annotated[list[ChoiceRow], about("the fastest first; slow templates are left out")]
    chosen: Annotated[int | None, about("position of the chosen one; null where not known")]
    others: Annotated[int, about("how many slower ones are left out")]
    is_cached: Annotated[bool, about("an earlier compile measured the times")]


class NotFusedRow(Part, frozen=True, kw_only=True):
    """A kernel that it passes buffers on to, or has them from, and that it is not fused with."""

    is_stored: Annotated[bool, about("its kernels store the buffers; else they load them")]
    kernel: Annotated[str, about("the other kernel")]
    file: str | None
    line: int | None
    module: Annotated[str | None, about("numbers of layers alike are `*`")]
    barrier: Annotated[str, about("why the two are not fused, as fusions has it")]
    reason: str
    buffers: int
    read_bytes: Annotated[int, about("what is loaded of them each time")]
    could_save_ns: Annotated[int | None, about("the time of that traffic in the profiled steps")]
    autotuned: Annotated[
        list[AutotunedFacts], about("of each of the two that max_autotune chose, if it timed any")
    ] = msgspec.field(default_factory=list)


class IdleRow(Part, frozen=True, kw_only=True):
    """Time in which the device waited while the CPU was there."""

    cause: str
    cpu_activity: str | None
    duration_ns: int


class MemoryRow(Part, frozen=True, kw_only=True):
    """Its memory of one kind, allocated in one phase."""

    kind: Annotated[str, about("as by_memory has it")]
    phase: Annotated[str, about("of the allocation")]
    peak_bytes: Annotated[int, about("alive at the peak")]
    blocks: Annotated[int, about("alive at the peak")]
    allocated_bytes: Annotated[int, about("what the step allocates, freed again or not")]
    allocations: int
    lifetime_ns: Annotated[int | None, about("of the block that lives longest, where known")]


class MemoryReason(Part, frozen=True, kw_only=True):
    """Why a part of its memory is alive at the peak."""

    reason: Annotated[str | None, about("as by_memory has it; null where it is not known")]
    peak_bytes: int
    needed_by: Annotated[str | None, about("what is still to read the largest of it")]
    needed_file: Annotated[str | None, about("the source of that, as the next")]
    needed_line: int | None
    held_by: Annotated[str | None, about("who holds the largest of it")]


class MemoryFacts(Part, frozen=True, kw_only=True):
    """Its part of a device's memory, in the step with the highest peak."""

    rank: int
    device: Annotated[int | None, about("null for the CPU")]
    step: int
    device_peak_bytes: Annotated[int, about("the allocator's count at the peak")]
    peak_bytes: Annotated[int, about("its part of that")]
    allocated_bytes: Annotated[int, about("what it allocates in the step, freed again or not")]
    at_phase: Annotated[str, about("in which phase the peak is")]
    rows: list[MemoryRow]
    reasons: Annotated[list[MemoryReason], about("why it is alive; add up to peak_bytes")]


class Against(Part, frozen=True, kw_only=True):
    """What changed since another run, the base; this session is the head."""

    base: comparison.SideFacts
    change: Annotated[comparison.ChangeFacts, about("of its device time in a mean step")]
    rows: Annotated[list[comparison.ComparedRow], about("of the comparison, those that are of it")]
    fusions: Annotated[list[comparison.FusionFacts], about("those in which it takes part")]
    sentences: Annotated[list[str], about("the same for a person")]
    notes: list[str]


class Explanation(SessionAnswer, frozen=True, kw_only=True, tag="explain"):
    """All about one thing."""

    subject: SubjectFacts
    time: TimeFacts
    no_time_reason: Annotated[str | None, about("why it has no time, where it has none")]
    steps: list[StepTime]
    kernels: list[KernelRow]
    fused_with: Annotated[list[PartRow], about("what else the same launches compute")]
    not_fused: Annotated[list[NotFusedRow], about("kernels that it exchanges buffers with")]
    lines: Annotated[list[PartRow], about("of a module or kernel, its lines")]
    modules: Annotated[list[PartRow], about("in which modules it runs; of a module those below")]
    ops: list[PartRow]
    callers: Annotated[list[PartRow], about("of a line, the lines that call it")]
    roofline: Roofline | None
    site_evidence_ns: dict[str, int]
    line_evidence_ns: dict[str, int]
    share_evidence_ns: Annotated[dict[str, int], about("how kernels are split among their nodes")]
    forward_evidence_ns: Annotated[dict[str, int], about("how backward is tied to forward")]
    own_gaps: Annotated[list[GapRow], about("what of it is unattributed, and why")]
    findings: Annotated[list[FindingEntry], about("those that touch it")]
    idle: list[IdleRow]
    generated: Annotated[list[Generated], about("code of its kernels, of most time first")]
    against: Annotated[Against | None, about("what changed since another run")] = None
    memory: Annotated[
        list[MemoryFacts], about("of each device, where memory was recorded and it has a part")
    ] = msgspec.field(default_factory=list)


class Candidates(SessionAnswer, frozen=True, kw_only=True, tag="candidates"):
    """What a name could mean that is not the name of one thing."""

    query: str
    is_ambiguous: Annotated[bool, about("it fits several; else it fits none, and these are close")]
    candidates: list[str]
