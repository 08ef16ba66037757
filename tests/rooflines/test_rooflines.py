"""What bounds a launch and what it could save, by the roofline of its device and its unit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Device
from profiler_ext.records.share_sums import KeyedShares
from profiler_ext.rooflines.peaks import Peak
from profiler_ext.rooflines.rooflines import LATENCY_NS, Rooflines, rooflines
from profiler_ext.rooflines.sums import of_shares, part_sums
from profiler_ext.rooflines.utilisation import utilisation, utilisation_by_step
from tests import frames as tables
from tests.analyses import GPU_MARKS, GPU_ROWS, gpu_step
from tests.exporters.estimated import Numbers, estimated
from tests.handmade import Mark, launches, shares, trace

ADDMM, GELU, BACKWARD, MM = 1, 2, 3, 4
PEAKS = {"H200": Peak(1000, {"bf16_tensor": 100, "fp32": 10})}
QUEUED_NS = 1_000


def queued(marks: tuple[Mark, ...] = GPU_MARKS) -> Analysis:
    """Return the step with all its launches enqueued early, so that the device never waits."""
    calls = ("cuda_runtime", "cuda_driver")
    early = tuple(replace(m, start_ns=QUEUED_NS) if m.category in calls else m for m in marks)
    analysis = gpu_step()
    recording = replace(analysis.recording, trace=trace(early, (Device(0, "NVIDIA H200"),)))
    return replace(analysis, recording=recording)


def found(numbers: Numbers, analysis: Analysis | None = None) -> Rooflines:
    return rooflines(estimated(numbers, analysis or queued()), PEAKS)


@pytest.mark.parametrize(
    ("moved", "flops", "bound", "roofline_ns", "saved_ns"),
    [
        (20_000_000, 1_000_000_000, "memory", 20_000, 50_000 - 25_000),
        (20_000_000, 3_000_000_000, "compute", 30_000, 50_000 - 37_500),
        (48_000_000, 1_000_000_000, "memory", 48_000, 0),
        (1_000_000, 100_000_000, "memory", 1_000, 50_000 - LATENCY_NS),
    ],
)
def test_the_roofline_is_the_longer_of_moving_and_computing(
    moved: int, flops: int, bound: str, roofline_ns: int, saved_ns: int
) -> None:
    each = found({(0, 0): (str(moved), str(flops))})
    reported = (each.bound[ADDMM], each.roofline_ns[ADDMM], each.could_save_ns[ADDMM])
    assert reported == (bound, roofline_ns, saved_ns)
    assert each.attainable_tflop_per_s[ADDMM] == pytest.approx(flops / roofline_ns / 1000)
    assert each.peak_fraction[ADDMM] == pytest.approx(roofline_ns / 50_000)


def test_a_short_launch_with_little_to_do_is_bound_by_latency_and_saves_nothing() -> None:
    short = replace(GPU_MARKS[24], duration_ns=4 * LATENCY_NS - 1)
    analysis = queued((*GPU_MARKS[:24], short, *GPU_MARKS[25:]))
    rows = launches((*GPU_MARKS[:24], short, *GPU_MARKS[25:]), GPU_ROWS)
    each = found({(0, 0): ("1000000", "1000000")}, replace(analysis, launches=rows))
    assert (each.bound[ADDMM], each.could_save_ns[ADDMM]) == ("latency", 0)


def test_before_a_device_that_waits_for_the_cpu_nothing_is_saved() -> None:
    numbers: Numbers = {(0, 0): ("20000000", "10"), (0, 1): ("2000000", "10")}
    each = found(numbers, gpu_step())
    assert [each.bound[row] for row in (ADDMM, GELU)] == ["memory", "launch"]
    assert each.could_save_ns[GELU] == 0


def test_a_launch_that_the_cpu_waits_for_is_not_bound_by_launching() -> None:
    gelu = GPU_MARKS[25]
    end_ns = gelu.start_ns + gelu.duration_ns
    wait = Mark("cudaStreamSynchronize", "cuda_runtime", GPU_MARKS[2].thread, end_ns - 10, 20)
    analysis = gpu_step()
    recording = replace(
        analysis.recording, trace=trace((*GPU_MARKS, wait), (Device(0, "NVIDIA H200"),))
    )
    each = found({(0, 1): ("2000000", "10")}, replace(analysis, recording=recording))
    assert each.bound[GELU] == "memory"


@pytest.mark.parametrize("name", ["nobody_knows", "nvjet_sm90_sss_64x64_64x13_2x1_v_bz_NNT"])
def test_a_product_of_an_unknown_unit_has_no_roofline(name: str) -> None:
    marks = (*GPU_MARKS[:24], replace(GPU_MARKS[24], name=name), *GPU_MARKS[25:])
    analysis = replace(queued(marks), launches=launches(marks, GPU_ROWS))
    each = found({(0, 0): ("20000000", "1000000000")}, analysis)
    assert (each.unit[ADDMM], each.bound[ADDMM]) == ("", "")
    assert each.roofline_ns[ADDMM] is np.ma.masked
    assert each.could_save_ns[ADDMM] is np.ma.masked
    assert each.tflop_per_s[ADDMM] == 20.0


def test_kernels_that_contradict_each_other_tell_no_unit() -> None:
    second = replace(GPU_ROWS[5], call_site=1, op_event=10)
    names = {27: "nvjet_tst_8x8_8x8_x", 28: "ampere_sgemm_128x64_tn"}
    marks = tuple(replace(m, name=names.get(at, m.name)) for at, m in enumerate(GPU_MARKS))
    rows = (*GPU_ROWS[:5], second, *GPU_ROWS[6:])
    analysis = replace(queued(marks), launches=launches(marks, rows), shares=shares(rows))
    each = found({(1, 1): ("20000000", "1000000000")}, analysis)
    assert [each.unit[row] for row in (MM, 5)] == ["", ""]


def test_shares_of_a_fused_launch_add_up_to_it() -> None:
    analysis = estimated({(0, 1): ("2000001", "7000003")}, queued())
    each = rooflines(analysis, PEAKS)
    parts = analysis.shares.launch == GELU
    for column in (each.bytes, each.flops, each.roofline_ns, each.could_save_ns):
        split = of_shares(analysis, column)[parts]
        assert int(split.sum()) == column[GELU]
        assert split[0] >= split[1] > 0


def test_sums_over_keys_add_up_to_the_launches() -> None:
    numbers: Numbers = {(0, 0): ("20000000", "900"), (0, 1): ("9000000", "70"), (1, 1): ("3", "5")}
    analysis = estimated(numbers, queued())
    each = rooflines(analysis, PEAKS)
    key = analysis.shares.place.astype(np.int64) % 3
    sums = part_sums(KeyedShares(analysis, np.arange(len(key)), key, 3), each).summed()
    for name in ("bytes", "flops", "roofline_ns", "could_save_ns"):
        assert int(getattr(sums, name).sum()) == int(getattr(each, name).sum())


@pytest.mark.parametrize(
    ("others", "bound", "fraction"), [((3, 5), "memory", 0.4), ((3, 5, 7), "", None)]
)
def test_less_than_half_of_a_rows_time_tells_no_bound_of_it(
    others: tuple[int, ...], bound: str, fraction: float | None
) -> None:
    analysis = estimated({(0, 0): ("20000000", "10")}, queued())
    assert analysis.launches.duration_ns[[ADDMM, 3, 5, 7]].tolist() == [50_000, 30_000, 20_000, 500]
    share = np.flatnonzero(np.isin(analysis.shares.launch, (ADDMM, *others)))
    shares = KeyedShares(analysis, share, np.zeros(len(share), np.int64), 1)
    sums = part_sums(shares, rooflines(analysis, PEAKS)).summed()
    assert (sums.bound[0], sums.peak_fraction.tolist()) == (bound, [fraction])
    assert (sums.roofline_ns.tolist(), sums.could_save_ns.tolist()) == ([20_000], [25_000])


def test_utilisation_is_the_models_operations_over_the_wall_time_at_the_peak() -> None:
    numbers: Numbers = {(0, 0): ("20000000", "2000000000"), (1, 1): ("20000000", "3000000000")}
    reported = utilisation(estimated(numbers, queued()), PEAKS)
    assert reported is not None
    assert (reported.flops, reported.by_unit) == (5_000_000_000, (("bf16_tensor", 5_000_000_000),))
    assert reported.mfu == pytest.approx(5e9 / (100e12 * 1e-3))
    assert (reported.known_fraction, reported.counted_fraction) == (1.0, pytest.approx(90 / 90))


def test_recomputed_products_are_no_operations_of_the_model() -> None:
    numbers: Numbers = {(0, 0): ("20000000", "2000000000"), (1, 1): ("20000000", "3000000000")}
    analysis = queued()
    places = list(analysis.places)
    places[6] = replace(places[6], phase="recompute")
    changed = utilisation(estimated(numbers, replace(analysis, places=tuple(places))), PEAKS)
    assert changed is not None
    assert changed.flops == 2_000_000_000


def test_without_a_peak_or_a_product_nothing_is_reported_of_utilisation() -> None:
    numbers: Numbers = {(0, 0): ("20000000", "2000000000")}
    assert utilisation(estimated(numbers, queued()), {}) is None
    assert utilisation(estimated({(0, 1): ("20000000", "2000")}, queued()), PEAKS) is None


def test_each_step_has_its_utilisation_in_a_table() -> None:
    numbers: Numbers = {(0, 0): ("20000000", "2000000000"), (1, 1): ("20000000", "3000000000")}
    table = tables.utilisation(estimated(numbers, queued()), peaks=PEAKS)
    assert table.to_dict("records") == [
        {
            "rank": 0,
            "step": 3,
            "wall_ns": 1_000_000,
            "est_flops": 5_000_000_000,
            "unit": "bf16_tensor",
            "mfu": pytest.approx(0.05),
            "known_fraction": 1.0,
            "counted_fraction": 1.0,
        }
    ]


def test_steps_of_one_number_are_one_row_of_the_wall_time_of_all() -> None:
    numbers: Numbers = {(0, 0): ("20000000", "2000000000"), (1, 1): ("20000000", "3000000000")}
    analysis = estimated(numbers, queued())
    twice = replace(analysis, steps=analysis.steps * 2)
    table = tables.utilisation(twice, peaks=PEAKS)
    assert table[["step", "wall_ns", "est_flops"]].to_numpy().tolist() == [
        [3, 2_000_000, 5_000_000_000]
    ]


def test_the_utilisation_of_each_step_is_that_of_it_alone() -> None:
    numbers: Numbers = {(0, 0): ("20000000", "2000000000"), (1, 1): ("20000000", "3000000000")}
    analysis = estimated(numbers, queued())
    moved = replace(analysis.launches, step=analysis.launches.step.copy())
    moved.step[BACKWARD:] = 4
    steps = tuple(replace(analysis.steps[0], number=number) for number in (4, 3, 5))
    several = replace(analysis, steps=steps, launches=moved)
    each = utilisation_by_step(several, (4, 3, 5), PEAKS)
    assert each == [utilisation(several, PEAKS, number) for number in (4, 3, 5)]
    assert [reported and reported.flops for reported in each] == [
        3_000_000_000,
        2_000_000_000,
        None,
    ]


def test_a_step_whose_utilisation_is_not_known_has_its_number_alone() -> None:
    table = tables.utilisation(gpu_step())
    assert table[["rank", "step"]].to_numpy().tolist() == [[0, 3]]
    assert table.drop(columns=["rank", "step"]).isna().all(axis=None)
