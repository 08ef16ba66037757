"""What a gradient scaler runs is the optimizer's, and nothing that the program runs before it."""

from __future__ import annotations

import pytest

from profiler_ext.attribution import attribute
from tests.attribution.reading import assert_conserves, rows
from tests.attribution.timeline import Timeline

UNSCALE = "_amp_foreach_non_finite_check_and_unscale_"
UPDATE = "_amp_update_scale_"


@pytest.mark.parametrize(
    ("theirs", "own"),
    [
        ("mul to", f"to reciprocal to full {UNSCALE}"),
        ("reciprocal to", f"to reciprocal to full to to {UNSCALE}"),
        ("to reciprocal to full full", UNSCALE),  # a fused optimizer's: nothing is unscaled
        ("reciprocal to full", UNSCALE),
        ("to add_", f"to {UPDATE}"),
        ("to", f"to to add_ {UPDATE}"),
        ("add_ to", f"to to to add_ add_ {UPDATE}"),
        ("add_", UPDATE),
        ("to add_", UPDATE),
    ],
)
def test_only_what_a_scaler_runs_is_the_optimizer_s(theirs: str, own: str) -> None:
    timeline = Timeline()
    for name in f"{theirs} {own}".split():
        timeline.op(f"aten::{name}", "kernel", **{"Sequence number": 1})
    analysis = attribute(timeline.recording())
    assert_conserves(analysis)
    phases = [phase for (phase,) in rows(analysis, "phase")]
    assert phases == ["other"] * len(theirs.split()) + ["optimizer"] * len(own.split())


def test_what_stands_elsewhere_is_none_of_a_scaler_s() -> None:
    timeline = Timeline()
    for name in ("to", "reciprocal"):
        timeline.op(f"aten::{name}", "kernel", **{"Sequence number": 1})
    with timeline.range("mine"):
        for name in ("to", "full", UNSCALE):
            timeline.op(f"aten::{name}", "kernel", **{"Sequence number": 1})
    assert rows(attribute(timeline.recording()), "phase") == [
        *[("other",)] * 4,
        ("optimizer",),
    ]


STEP = "Optimizer.step#SGD.step"


@pytest.mark.parametrize(
    ("ran", "phases"),
    [
        (f"{UNSCALE} item {STEP}", "optimizer optimizer"),
        (f"{UNSCALE} {UNSCALE} item {STEP}", "optimizer optimizer optimizer"),  # of two devices
        (f"{UNSCALE} item item {STEP}", "optimizer other other"),
        (f"{UNSCALE} item", "optimizer other"),
        (f"{UNSCALE} item Optimizer.zero_grad#SGD.zero_grad", "optimizer other"),
        (f"{UNSCALE} mul item {STEP}", "optimizer other other"),
        (f"{UPDATE} item {STEP}", "optimizer other"),
    ],
)
def test_what_asks_right_before_a_step_if_all_was_finite_is_the_optimizer_s(
    ran: str, phases: str
) -> None:
    timeline = Timeline()
    for name in ran.split():
        if name.startswith("Optimizer"):
            with timeline.range(name, "user_annotation"):
                pass
        else:
            timeline.op(f"aten::{name}", "kernel", **{"Sequence number": 1})
    analysis = attribute(timeline.recording())
    assert_conserves(analysis)
    assert [phase for (phase,) in rows(analysis, "phase")] == phases.split()
