"""A backward tag that spread onto forward work decides nothing, and the breakdown says so.

Builds before 2.12 kept the tag among the labels that nodes share, as ``annotate`` writes them.
"""

import pytest

import profiler_ext
from tests import frames as tables
from tests.compiling import torch


def scores(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    with torch.fx.traceback.annotate({"autograd_backward": True, "region": "scores"}):
        first = a @ b
    return first @ b


@pytest.mark.usefixtures("fresh_torch")
def test_forward_work_that_was_tagged_the_old_way_is_forward_in_all_tables() -> None:
    a, b = torch.randn(8, 8, requires_grad=True), torch.randn(8, 8)
    profiler_ext.enable(strict=True)
    compiled = torch.compile(scores)
    compiled(a, b).sum().backward()
    with profiler_ext.profile(strict=True, acc_events=True) as prof:
        compiled(a, b).sum().backward()
    rows = prof.attribution()
    rows = rows[rows.aten_op == "aten.mm.default"]
    first = rows.iloc[0]
    reported = (first.phase, bool(first.autograd_backward), first.annotation)
    assert reported == ("forward", True, "region=scores")
    assert list(rows.phase) == ["forward", "forward", "backward", "backward"]
    coverage = prof.coverage().set_index(["scope", "category"])
    corrected = coverage.loc[("compiled", "line_phase_corrected")]
    assert (corrected.level, corrected.duration_ns) == ("line", first.duration_ns)
    assert tables.fraction_at(prof.session.analysis, "line", "compiled") == 1
    assert "torch's backward tag was wrong" in prof.report(verbose=True)
    (note,) = [each for each in prof.session.notes if "autograd_backward" in each]
    assert note.startswith("torch tagged 1 forward nodes of 1 graphs with autograd_backward (mm)")
