"""The rule for settings of debugging that slow each op."""

from __future__ import annotations

from collections.abc import Iterable

from profiler_ext.findings.facts import Facts
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit, SavingPer
from profiler_ext.findings.rule import Candidate, Rule

_REMEDIES = {
    "anomaly detection": "torch.autograd.set_detect_anomaly(False), no detect_anomaly()",
    "CUDA_LAUNCH_BLOCKING": "unset CUDA_LAUNCH_BLOCKING",
    "TORCH_SHOW_DISPATCH_TRACE": "unset TORCH_SHOW_DISPATCH_TRACE",
    "deterministic algorithms": "torch.use_deterministic_algorithms(False), if runs "
    "need not repeat bit for bit",
}


def _judge(facts: Facts) -> Iterable[Candidate]:
    settings = facts.analysis.recording.settings
    return [
        Candidate(
            summary=f"{name} is on, which slows ops",
            est_saving_ns=0,
            saving_per=SavingPer.UNKNOWN,
            confidence=Confidence.ESTIMATED,
            remedy=_REMEDIES[name],
            evidence=(Figure("torch", settings.torch_version, FigureUnit.TEXT),),
        )
        for name in settings.debug_settings
        if name in _REMEDIES
    ]


RULE = Rule(
    name="debug_setting",
    title="A setting of debugging that slows ops",
    means="While the steps were recorded, anomaly detection, deterministic algorithms, "
    "`CUDA_LAUNCH_BLOCKING` or `TORCH_SHOW_DISPATCH_TRACE` was on.",
    because="Anomaly detection keeps a stack for each forward op and reads each gradient of the "
    "backward. `CUDA_LAUNCH_BLOCKING` waits for each kernel. Deterministic algorithms sort where "
    "others add atomically. They are needed to look for an error, and are easily left on.",
    remedy="Turn it off for training, or turn it on for a few steps.",
    saving="Unknown: what an op costs without the setting is not in the recording.",
    judge=_judge,
)
