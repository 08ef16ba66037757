from __future__ import annotations

import pytest

from profiler_ext.rooflines.compute_units import Unit
from profiler_ext.rooflines.peaks import DEVICES, PEAKS, Peak, peak_of

HOSTS = (
    "www.nvidia.com/",
    "images.nvidia.com/",
    "resources.nvidia.com/",
    "www.amd.com/",
    "d1.awsstatic.com/",
)


@pytest.mark.parametrize(
    ("device", "gb_per_s", "fp32", "tf32", "bf16", "fp8"),
    [
        ("NVIDIA B200", 8000, 80, 1100, 2250, 4500),
        ("NVIDIA H200", 4800, 67, 494.5, 989.5, 1979),
        ("NVIDIA GH200 480GB", 4000, 67, 494, 990, 1979),
        ("NVIDIA H100 80GB HBM3", 3350, 67, 494.5, 989.5, 1979),
        ("NVIDIA H100 PCIe", 2000, 51, 378, 756.5, 1513),
        ("NVIDIA H100 NVL", 3900, 60, 417.5, 835.5, 1670.5),
        ("NVIDIA A100-SXM4-40GB", 1555, 19.5, 156, 312, None),
        ("NVIDIA A100-SXM4-80GB", 2039, 19.5, 156, 312, None),
        ("NVIDIA A100 80GB PCIe", 1935, 19.5, 156, 312, None),
        ("NVIDIA L4", 300, 30.3, 60, 121, 242.5),
        ("NVIDIA L40S", 864, 91.6, 183, 362.5, 733),
        ("NVIDIA GeForce RTX 4090", 1008, 82.6, 82.6, 165.2, 330.3),
        ("Tesla V100-SXM2-16GB", 900, 15.7, None, None, None),
        ("Tesla T4", 320, 8.1, None, None, None),
    ],
)
def test_device_is_known_by_the_words_of_its_name(
    device: str,
    gb_per_s: float,
    fp32: float,
    tf32: float | None,
    bf16: float | None,
    fp8: float | None,
) -> None:
    peak = peak_of(device)
    assert peak is not None
    units = (Unit.FP32, Unit.TF32_TENSOR, Unit.BF16_TENSOR, Unit.FP8_TENSOR)
    assert (peak.gb_per_s, *map(peak.of, units)) == (gb_per_s, fp32, tf32, bf16, fp8)


@pytest.mark.parametrize(
    "device",
    [
        "Abacus 9000",
        "NVIDIA A100-SXM-64GB",
        "NVIDIA H20",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 3090 Ti",
    ],
)
def test_a_device_that_is_not_in_the_table_has_no_peak(device: str) -> None:
    assert peak_of(device) is None


def test_every_row_is_found_by_its_own_name_and_says_its_source_with_a_link() -> None:
    for device in DEVICES:
        assert peak_of(device.name) == PEAKS[device.name]
        title, _, link = device.source.partition(": https://")
        assert title.startswith(("NVIDIA ", "AMD "))
        assert link.startswith(HOSTS)


def test_tensor_cores_are_faster_the_narrower_the_format() -> None:
    order = (Unit.TF32_TENSOR, Unit.BF16_TENSOR, Unit.FP8_TENSOR, Unit.FP4_TENSOR)
    for peak in PEAKS.values():
        known = [figure for unit in order if (figure := peak.of(unit)) is not None]
        assert known == sorted(known)
        assert len(set(known)) == len(known)


def test_own_figures_stand_for_the_built_in_ones() -> None:
    own = {"H200": Peak(1, {Unit.BF16_TENSOR: 2})}
    assert peak_of("NVIDIA H200", own) == own["H200"]
    assert peak_of("NVIDIA L4", own) is None


def test_what_is_no_unit_has_no_peak() -> None:
    assert PEAKS["H200"].of(None) is None
    assert PEAKS["H200"].of("") is None
