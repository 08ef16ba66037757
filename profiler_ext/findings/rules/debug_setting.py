"""The rule for settings of debugging that slow each op."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from profiler_ext.findings.cpu_work import ANOMALY
from profiler_ext.findings.facts import Facts
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit, SavingPer
from profiler_ext.findings.groups import Kind
from profiler_ext.findings.launch_groups import groups_of
from profiler_ext.findings.rule import Candidate, Rule, count_and_time

_REMEDIES = {
    ANOMALY: "torch.autograd.set_detect_anomaly(False), no detect_anomaly()",
    "CUDA_LAUNCH_BLOCKING": "unset CUDA_LAUNCH_BLOCKING",
    "memory history": "torch.cuda.memory._record_memory_history(enabled=None)",
    "PROFILER_EXT_MEMORY=oom": "unset PROFILER_EXT_MEMORY",
    "TORCH_SHOW_DISPATCH_TRACE": "unset TORCH_SHOW_DISPATCH_TRACE",
    "deterministic algorithms": "torch.use_deterministic_algorithms(False), if runs "
    "need not repeat bit for bit",
}


def _judge(facts: Facts) -> Iterable[Candidate]:
    names = facts.analysis.recording.settings.debug_settings
    return [_candidate(facts, name) for name in names if name in _REMEDIES]


def _candidate(facts: Facts, name: str) -> Candidate:
    version = Figure("torch", facts.analysis.recording.settings.torch_version, FigureUnit.TEXT)
    unknown = Candidate(
        summary=f"{name} is on, which slows ops",
        est_saving_ns=0,
        saving_per=SavingPer.UNKNOWN,
        confidence=Confidence.ESTIMATED,
        remedy=_REMEDIES[name],
        evidence=(version,),
    )
    checking = groups_of(facts, Kind.CHECKING) if name == ANOMALY else []
    if not checking:
        return unknown
    launches = np.concatenate([each.launches for each in checking])
    idle = np.concatenate([each.idle(facts) for each in checking])
    return replace(
        unknown,
        est_saving_ns=sum(each.saving_ns for each in checking),
        saving_per=SavingPer.STEP,
        busy_ns=facts.median_per_step(launches, facts.launches.duration_ns[launches]),
        evidence=(
            Figure("stacks and checks a step", sum(each.count for each in checking)),
            *count_and_time(facts, launches),
            version,
        ),
        launches=launches,
        idle=idle,
    )


RULE = Rule(
    name="debug_setting",
    title="A setting of debugging that slows ops",
    means="While the steps were recorded, anomaly detection, the history of CUDA memory, "
    "deterministic algorithms, `CUDA_LAUNCH_BLOCKING` or `TORCH_SHOW_DISPATCH_TRACE` was on.",
    because="Anomaly detection keeps a stack for each forward op and reads each gradient of the "
    "backward. The memory history keeps a stack for each allocation. `CUDA_LAUNCH_BLOCKING` waits "
    "for each kernel. Deterministic algorithms sort where others add atomically. They are needed "
    "to look for an error, and are easily left on.",
    remedy="Turn it off for training, or turn it on for a few steps.",
    saving="Of anomaly detection, how much shorter the step would be in a replay without the stack "
    "that each op of a forward keeps (nothing else is recorded for 50 microseconds at its begin) "
    "and without the checks of each gradient, which wait for the device. Of other settings "
    "unknown: what an op costs without them is not in the recording.",
    judge=_judge,
)
