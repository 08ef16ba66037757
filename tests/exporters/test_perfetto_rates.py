from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiler_ext.exporters.perfetto import export_perfetto, queries
from profiler_ext.exporters.perfetto.rates import Rates, rounded
from tests import analyses
from tests import frames as tables
from tests.exporters.encoded_arguments import arguments_of
from tests.exporters.estimated import estimated
from tests.trace_processor import reading

ADDMM, GELU, GELU_BACKWARD, MM = 1, 2, 3, 4


def _drawn(rates: Rates) -> dict[str, float]:
    of_addmm = rates.of(np.array([ADDMM]))
    return {name: float(column[0]) for name, column in of_addmm.items() if column.count()}


def _arguments(rates: Rates, row: int) -> dict[str, Any]:
    texts = {name: of_rows[row] for name, of_rows in rates.texts().items() if of_rows[row]}
    return arguments_of(rates.arguments(), row) | texts


def test_rates_are_the_estimates_over_the_time_of_the_launch() -> None:
    rates = Rates(estimated({(0, 0): ("50000000", "10000000000")}))
    assert _drawn(rates) == {"est_gb_per_s": 1000.0, "est_tflop_per_s": 200.0}
    assert _arguments(rates, ADDMM) == {
        "est_gb_per_s": 1000.0,
        "est_tflop_per_s": 200.0,
        "est_percent_of_peak_bandwidth": 20.8,
        "est_percent_of_peak_arithmetic": 20.2,
        "est_bytes": 50_000_000,
        "est_flops": 10_000_000_000,
        "roofline_ns": 10_417,
        "could_save_ns": 36_978,
        "bound": "memory",
        "unit": "bf16_tensor",
    }


@pytest.mark.parametrize("estimate", [None, "4*s77"])
def test_site_without_a_number_has_no_rate(estimate: str | None) -> None:
    rates = Rates(estimated({(0, 0): (estimate, estimate)}))
    assert _arguments(rates, ADDMM) == {"unit": "bf16_tensor"}


def test_estimate_far_beyond_the_peak_is_refused_and_reported() -> None:
    rates = Rates(estimated({(0, 0): ("500000000000", "10")}))
    assert _drawn(rates) == {}
    assert _arguments(rates, ADDMM) == {
        "unit": "bf16_tensor",
        "estimate": "more than 2 times the peak: not drawn",
    }


def test_device_without_a_known_peak_keeps_its_rates() -> None:
    rates = Rates(estimated({(0, 0): ("500000000000", None)}), peaks={})
    assert _arguments(rates, ADDMM) == {
        "est_gb_per_s": 10_000_000.0,
        "est_bytes": 500_000_000_000,
        "unit": "bf16_tensor",
    }


@pytest.mark.parametrize("seed", range(5))
def test_percentages_are_rounded_as_python_rounds(seed: int) -> None:
    random = np.random.default_rng(seed)
    middles = random.integers(0, 10_000, 500) / 20
    columns = [middles, np.nextafter(middles, 0), np.nextafter(middles, 1e9), random.random(500)]
    numbers = [*np.concatenate(columns).tolist(), 2.0**53, 1e308, float("inf")]
    assert rounded(np.ma.array(numbers)).tolist() == [round(number, 1) for number in numbers]


def test_launch_on_the_cpu_is_not_measured_against_a_gpu() -> None:
    analysis = estimated({(0, 0): ("50000000", None)})
    devices = analysis.recording.trace.devices
    cpu = analyses.cpu_step()
    on_gpu_host = dataclasses.replace(cpu.recording.trace, devices=devices)
    recording = dataclasses.replace(analysis.recording, trace=on_gpu_host)
    rates = Rates(dataclasses.replace(cpu, recording=recording))
    assert _arguments(rates, 0) == {"est_gb_per_s": 500.0, "est_bytes": 50_000_000}


def test_counter_adds_overlapping_launches_and_names_the_peak(tmp_path: Path) -> None:
    path = tmp_path / "trace.pftrace"
    export_perfetto(estimated({(1, 0): ("3000000", "30"), (1, 1): ("8000000", None)}), path)
    with reading(path) as reader:
        counted = reader.rows("""
            select t.name as name, t.unit as unit, ts, value
            from counter join counter_track t on t.id = track_id
            where t.name like 'est. GB/s%' order by ts
        """)
        errors = reader.import_errors()
    assert errors == []
    assert counted == [
        ("est. GB/s (peak 4800)", "GB/s", 310_000, 100.0),
        ("est. GB/s (peak 4800)", "GB/s", 330_000, 300.0),
        ("est. GB/s (peak 4800)", "GB/s", 340_000, 200.0),
        ("est. GB/s (peak 4800)", "GB/s", 370_000, 0.0),
    ]


def test_a_query_has_the_roofline_of_each_launch(tmp_path: Path) -> None:
    path = tmp_path / "trace.pftrace"
    analysis = estimated({(0, 0): ("50000000", "10000000000"), (1, 1): ("8000000", "30")})
    export_perfetto(analysis, path)
    names = ("unit", "bound", "roofline_ns", "could_save_ns")
    with reading(path) as reader:
        reader.rows(queries())
        drawn = reader.rows(f"select {', '.join(names)} from launch where bound is not null")
    table = tables.launches(analysis)
    rows = table[table["bound"].notna()][list(names)].astype(object).to_numpy().tolist()
    assert sorted(map(tuple, drawn)) == sorted(map(tuple, rows))
