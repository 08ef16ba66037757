from __future__ import annotations

import pytest

from profiler_ext.rooflines.peaks import Peak, peak_of


@pytest.mark.parametrize(
    ("device", "peak"),
    [
        ("NVIDIA H200", Peak(4800, 989)),
        ("NVIDIA GH200 480GB", Peak(4000, 989)),
        ("NVIDIA H100 80GB HBM3", Peak(3350, 989)),
        ("NVIDIA H100 PCIe", Peak(2000, 756)),
        ("NVIDIA A100-SXM4-40GB", Peak(1555, 312)),
        ("NVIDIA A100-SXM4-80GB", Peak(2039, 312)),
        ("NVIDIA L4", Peak(300, 121)),
        ("NVIDIA L40S", Peak(864, 362)),
        ("Tesla V100-SXM2-16GB", Peak(900, 125)),
    ],
)
def test_device_is_known_by_the_words_of_its_name(device: str, peak: Peak) -> None:
    assert peak_of(device) == peak


def test_unknown_device_has_no_peak() -> None:
    assert peak_of("Abacus 9000") is None


def test_own_figures_stand_for_the_built_in_ones() -> None:
    own = {"Abacus": Peak(1, 2)}
    assert peak_of("Abacus 9000", own) == Peak(1, 2)
    assert peak_of("NVIDIA H200", own) is None
