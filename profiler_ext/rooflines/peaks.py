"""Owns what a device can do at best: memory bandwidth and dense bf16 arithmetic, by its name.

The figures are the makers' own, without sparsity, at boost clock. Where a data sheet gives
tensor arithmetic only "with sparsity", half of it stands here.

Sources: the NVIDIA data sheets of B200 (HGX B200), H200 (SXM, NVL), H100 (SXM, PCIe, NVL),
GH200, A100 (SXM and PCIe, 40 and 80 GB), L40S, L4, A10, A10G (as AWS G5 states it), V100 and
T4 (these two have no bf16: fp16 stands here), and of the GeForce RTX 4090 and 3090 (the Ada
and Ampere GA102 white papers, fp32 accumulation); AMD's data sheets of MI300X and MI250X.
https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf
https://resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet (H100: 1,979 with
sparsity, so 989.5 dense).

Those of B200 (memory), H200, H100 and A100 SXM, L40S, A10, T4, V100, RTX 4090, MI300X (memory)
and MI250X (arithmetic) were compared with what others quote of these sheets, and agree; the rest
could not be compared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Peak:
    """The best that a device can do.

    Attributes:
        gb_per_s: memory bandwidth in 10^9 bytes a second.
        tflop_per_s: dense bf16 arithmetic in 10^12 floating-point operations a second.
    """

    gb_per_s: float
    tflop_per_s: float


PEAKS: Final[Mapping[str, Peak]] = {
    "B200": Peak(8000, 2250),
    "GH200": Peak(4000, 989),
    "H200 NVL": Peak(4800, 835),
    "H200": Peak(4800, 989),
    "H100 PCIe": Peak(2000, 756),
    "H100 NVL": Peak(3900, 835),
    "H100": Peak(3350, 989),
    "A100 PCIE 40GB": Peak(1555, 312),
    "A100 SXM4 40GB": Peak(1555, 312),
    "A100 80GB PCIe": Peak(1935, 312),
    "A100": Peak(2039, 312),
    "L40S": Peak(864, 362),
    "L4": Peak(300, 121),
    "A10G": Peak(600, 70),
    "A10": Peak(600, 125),
    "V100": Peak(900, 125),
    "T4": Peak(320, 65),
    "RTX 4090": Peak(1008, 165),
    "RTX 3090": Peak(936, 71),
    "MI300X": Peak(5300, 1307),
    "MI250X": Peak(3277, 383),
}
"""Device to peak; of two that fit a name, the first stands for it."""


def peak_of(device: str, peaks: Mapping[str, Peak] = PEAKS) -> Peak | None:
    """Return what a device can do at best.

    Args:
        device: its name as the trace gives it: ``NVIDIA H100 80GB HBM3``.
        peaks: words of a name to its peak; give your own to correct or add a device.

    Returns:
        The first entry all of whose words stand in the name, ``None`` if there is none.
    """
    words = _words(device)
    return next((peak for name, peak in peaks.items() if _words(name) <= words), None)


def _words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", name.lower()))
