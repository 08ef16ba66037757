"""The profiler keeps a pointer to an event's name: the name must outlive the recording."""

from __future__ import annotations

import gc

import torch.profiler

from profiler_ext.torch_compat import process


def test_a_name_made_for_one_event_is_whole_in_the_trace():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
        for number in range(200):
            with process.recording(f"profiler_ext: module {number}"):
                pass
        gc.collect()
        filler = [f"other text {number} " * 3 for number in range(20_000)]
    recorded = {event.name for event in prof.events()}
    assert {f"profiler_ext: module {number}" for number in range(200)} <= recorded
    assert len(filler) == 20_000
