"""Settings of debugging that were on are named, and recorded."""

from __future__ import annotations

from dataclasses import replace

import torch

from profiler_ext.findings import SavingPer
from profiler_ext.findings.rules.debug_setting import RULE
from profiler_ext.torch_compat.process import debug_settings
from tests.findings.stepping import US, is_silent, judged, steps


def test_each_setting_that_was_on_is_a_note_with_its_remedy() -> None:
    analysis = steps(2 * US).analysis()
    assert is_silent(RULE, analysis)
    recording = analysis.recording
    names = ("anomaly detection", "CUDA_LAUNCH_BLOCKING")
    settings = replace(recording.settings, debug_settings=names)
    found = judged(RULE, replace(analysis, recording=replace(recording, settings=settings))).ranked
    assert [each.summary for each in found] == [f"{name} is on, which slows ops" for name in names]
    assert all(each.saving_per is SavingPer.UNKNOWN and not each.est_saving_ns for each in found)
    assert found[1].remedy == "unset CUDA_LAUNCH_BLOCKING"


def test_what_is_on_in_a_process_is_known(monkeypatch) -> None:
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING", raising=False)
    assert debug_settings() == ()
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    with torch.autograd.set_detect_anomaly(True):
        assert debug_settings() == ("anomaly detection", "CUDA_LAUNCH_BLOCKING")
