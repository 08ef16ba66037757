from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from exporters.perfetto import export_perfetto
from exporters.perfetto.rates import Rates
from profiler_ext.records import Analysis, CallSite
from tests import analyses
from tests.trace_processor import reading

ADDMM, GELU, GELU_BACKWARD, MM = 1, 2, 3, 4


def _estimated(estimates: dict[tuple[int, int], tuple[str | None, str | None]]) -> Analysis:
    """Return the GPU step in which call sites, by graph and ordinal, have bytes and FLOPs."""
    analysis = analyses.gpu_step()

    def with_estimate(graph: int, site: CallSite) -> CallSite:
        moved, flops = estimates.get((graph, site.ordinal), (None, None))
        return dataclasses.replace(site, bytes_moved=moved, flops=flops)

    graphs = []
    for number, graph in enumerate(analysis.recording.graphs):
        assert graph.provenance is not None
        sites = tuple(with_estimate(number, site) for site in graph.provenance.call_sites)
        provenance = dataclasses.replace(graph.provenance, call_sites=sites)
        graphs.append(dataclasses.replace(graph, provenance=provenance))
    recording = dataclasses.replace(analysis.recording, graphs=tuple(graphs))
    return dataclasses.replace(analysis, recording=recording)


def test_rates_are_the_estimates_over_the_time_of_the_launch() -> None:
    rates = Rates(_estimated({(0, 0): ("50000000", "10000000000")}))
    assert rates.of(ADDMM) == {"est_gb_per_s": 1000.0, "est_tflop_per_s": 200.0}
    assert rates.arguments(ADDMM) == {
        "est_gb_per_s": 1000.0,
        "est_tflop_per_s": 200.0,
        "est_percent_of_peak_bandwidth": 20.8,
        "est_percent_of_peak_arithmetic": 20.2,
    }


@pytest.mark.parametrize("estimate", [None, "4*s77"])
def test_site_without_a_number_has_no_rate(estimate: str | None) -> None:
    rates = Rates(_estimated({(0, 0): (estimate, estimate)}))
    assert rates.arguments(ADDMM) == {}


def test_estimate_far_beyond_the_peak_is_refused_and_said() -> None:
    rates = Rates(_estimated({(0, 0): ("500000000000", "10")}))
    assert rates.of(ADDMM) == {}
    assert rates.arguments(ADDMM) == {"estimate": "more than 2 times the peak: not drawn"}


def test_device_without_a_known_peak_keeps_its_rates() -> None:
    rates = Rates(_estimated({(0, 0): ("500000000000", None)}), peaks={})
    assert rates.arguments(ADDMM) == {"est_gb_per_s": 10_000_000.0}


def test_launch_on_the_cpu_is_not_measured_against_a_gpu() -> None:
    analysis = _estimated({(0, 0): ("50000000", None)})
    devices = analysis.recording.trace.devices
    cpu = analyses.cpu_step()
    on_gpu_host = dataclasses.replace(cpu.recording.trace, devices=devices)
    recording = dataclasses.replace(analysis.recording, trace=on_gpu_host)
    rates = Rates(dataclasses.replace(cpu, recording=recording))
    assert rates.arguments(0) == {"est_gb_per_s": 500.0}


def test_counter_adds_overlapping_launches_and_names_the_peak(tmp_path: Path) -> None:
    path = tmp_path / "trace.pftrace"
    export_perfetto(_estimated({(1, 0): ("3000000", "30"), (1, 1): ("8000000", None)}), path)
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
