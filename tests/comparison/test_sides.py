"""What a side of a comparison knows of where it ran: the CPU, and torch in which folder."""

from __future__ import annotations

import pytest

from profiler_ext.comparison.comparison import compare
from profiler_ext.comparison.notes import notes
from profiler_ext.comparison.records import Verdict
from profiler_ext.comparison.sides import file_names
from profiler_ext.records.recording import Settings
from tests.comparison.by_hand import launch, run


def steps(duration_ns: int) -> list[list[object]]:
    """Return six steps of one line that differ by a thousandth."""
    return [[launch(10, duration_ns + n * duration_ns // 1000)] for n in range(6)]


@pytest.mark.parametrize(
    ("device", "verdict"), [("NVIDIA H200", Verdict.SLOWER), (None, Verdict.NOT_SIGNIFICANT)]
)
def test_a_tenth_more_is_a_change_on_a_gpu_and_may_be_noise_on_a_cpu(device, verdict):
    base, head = (run(steps(ns), device=device) for ns in (1_000_000, 1_100_000))
    comparison = compare([base], [head])
    assert comparison.device.verdict is verdict
    (row,) = (row for row in comparison.table("line").rows if row.subject.line == 10)
    assert row.change.verdict is verdict


def test_a_cpu_that_takes_three_times_as_long_is_slower():
    base, head = (run(steps(ns), device=None) for ns in (1_000_000, 3_000_000))
    comparison = compare([base], [head])
    assert comparison.device.verdict is Verdict.SLOWER
    assert notes(comparison) == (
        "each side is one run: runs of one program are taken to differ as is usual (the CPU's time "
        "by 25%); several runs of each side tell it",
    )


def test_a_torch_run_from_its_sources_has_the_file_names_of_an_installed_one():
    installed = Settings(library_roots=("/env/lib/python3.12/site-packages",))
    sources = Settings(
        user_roots=("/home/me/torch",),
        library_roots=("/env/lib/python3.12/site-packages", "/home/me/pytorch/torch"),
    )
    adam = "optim/adam.py"
    assert file_names(["/env/lib/python3.12/site-packages/torch/optim/adam.py"], installed) == {
        f"/env/lib/python3.12/site-packages/torch/{adam}": f"torch/{adam}"
    }
    assert file_names([f"/home/me/pytorch/torch/{adam}", "/home/me/torch/train.py"], sources) == {
        f"/home/me/pytorch/torch/{adam}": f"torch/{adam}",
        "/home/me/torch/train.py": "train.py",
    }
