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
    assert phases == ["forward"] * len(theirs.split()) + ["optimizer"] * len(own.split())


def test_what_stands_elsewhere_is_none_of_a_scaler_s() -> None:
    timeline = Timeline()
    for name in ("to", "reciprocal"):
        timeline.op(f"aten::{name}", "kernel", **{"Sequence number": 1})
    with timeline.range("mine"):
        for name in ("to", "full", UNSCALE):
            timeline.op(f"aten::{name}", "kernel", **{"Sequence number": 1})
    assert rows(attribute(timeline.recording()), "phase") == [
        *[("forward",)] * 4,
        ("optimizer",),
    ]
