"""Peak memory bandwidth and arithmetic of devices by unit, each with its source.

The makers' figures, dense (without sparsity), with float32 accumulation where stated, at boost
clock. Where a data sheet has tensor figures "with sparsity" only, half is used. A unit that a
device lacks, or whose peak is not published, is missing; so is any device not in the table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from profiler_ext.rooflines.compute_units import Unit

_H100 = (
    "NVIDIA H100 Tensor Core GPU data sheet, halved where with sparsity: "
    "https://resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet"
)
_H200 = (
    "NVIDIA H200 Tensor Core GPU data sheet, halved where with sparsity: "
    "https://resources.nvidia.com/en-us-data-center-overview-mc/en-us-data-center-overview/hpc-datasheet-sc23-h200"
)
_GH200 = (
    "NVIDIA GH200 Grace Hopper Superchip data sheet, halved where with sparsity: "
    "https://resources.nvidia.com/en-us-data-center-overview-mc/en-us-data-center-overview/grace-hopper-superchip-datasheet-partner"
)
_BLACKWELL = (
    "NVIDIA Blackwell Architecture Technical Brief, table of GPU specifications, dense: "
    "https://resources.nvidia.com/en-us-blackwell-architecture/blackwell-architecture-technical-brief"
)
_A100 = (
    "NVIDIA A100 Tensor Core GPU data sheet: "
    "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
)
_L40S = (
    "NVIDIA L40S data sheet, halved where with sparsity: "
    "https://resources.nvidia.com/en-us-l40s/l40s-datasheet-28413"
)
_L4 = (
    "NVIDIA L4 Tensor Core GPU data sheet, halved where with sparsity: "
    "https://resources.nvidia.com/en-us-data-center-overview/l4-gpu-datasheet"
)
_A10 = (
    "NVIDIA A10 Tensor Core GPU data sheet: "
    "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a10/pdf/a10-datasheet.pdf"
)
_A10G = (
    "NVIDIA A10G data sheet for AWS EC2 G5: "
    "https://d1.awsstatic.com/product-marketing/ec2/NVIDIA_AWS_A10G_DataSheet_FINAL_02_17_2022.pdf"
)
_A30 = (
    "NVIDIA A30 Tensor Core GPU data sheet: "
    "https://www.nvidia.com/content/dam/en-zz/Solutions/data-center/products/a30-gpu/pdf/a30-datasheet.pdf"
)
_A40 = (
    "NVIDIA A40 data sheet: "
    "https://images.nvidia.com/content/Solutions/data-center/a40/nvidia-a40-datasheet.pdf"
)
_GA102 = (
    "NVIDIA Ampere GA102 GPU Architecture white paper, with FP32 accumulation: "
    "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.1.pdf"
)
_ADA = (
    "NVIDIA Ada GPU Architecture white paper, with FP32 accumulation: "
    "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf"
)
_RTX_BLACKWELL = (
    "NVIDIA RTX Blackwell GPU Architecture white paper, with FP32 accumulation: "
    "https://images.nvidia.com/aem-dam/Solutions/geforce/blackwell/nvidia-rtx-blackwell-gpu-architecture.pdf"
)
_V100 = (
    "NVIDIA V100 Tensor Core GPU data sheet: "
    "https://images.nvidia.com/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf"
)
_T4 = (
    "NVIDIA T4 Tensor Core GPU data sheet: "
    "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/tesla-t4/t4-tensor-core-datasheet-951643.pdf"
)
_MI325X = (
    "AMD Instinct MI325X data sheet, matrix peaks: "
    "https://www.amd.com/content/dam/amd/en/documents/instinct-tech-docs/product-briefs/instinct-mi325x-datasheet.pdf"
)
_MI300X = (
    "AMD Instinct MI300X data sheet, matrix peaks: "
    "https://www.amd.com/content/dam/amd/en/documents/instinct-tech-docs/data-sheets/amd-instinct-mi300x-data-sheet.pdf"
)
_MI250 = (
    "AMD Instinct MI200 data sheet, MI250X halved, as torch sees each of its two dies: "
    "https://www.amd.com/content/dam/amd/en/documents/instinct-tech-docs/instinct-mi200-datasheet.pdf"
)

_UNITS = (
    Unit.FP64,
    Unit.FP64_TENSOR,
    Unit.FP32,
    Unit.TF32_TENSOR,
    Unit.BF16_TENSOR,
    Unit.FP16_TENSOR,
    Unit.FP8_TENSOR,
    Unit.FP4_TENSOR,
    Unit.INT8_TENSOR,
)
_: float | None = None
# A part of a device, or another one that is named like it, has peaks of its own.
_OTHERS = frozenset({"mig", "laptop", "mobile", "max", "d", "ti", "super"})


@dataclass(frozen=True, slots=True)
class DevicePeaks:
    """A device of the table."""

    name: str  # words that its name must contain
    gb_per_s: float  # memory bandwidth in 10^9 bytes a second
    units: tuple[tuple[Unit, float], ...]  # pairs of unit and 10^12 operations a second
    source: str  # where the figures are from


def _row(
    name: str, source: str, gb_per_s: float, tflop_per_s: tuple[float | None, ...]
) -> DevicePeaks:
    pairs = zip(_UNITS, tflop_per_s, strict=True)
    return DevicePeaks(name, gb_per_s, tuple((u, v) for u, v in pairs if v is not None), source)


# Name, source, GB/s; then fp64, fp64 on tensor cores, fp32, TF32, bf16, fp16, fp8, fp4, int8.
# The first row that matches a name applies
DEVICES = (
    _row("GB200", _BLACKWELL, 8000, (45, 45, 90, 1250, 2500, 2500, 5000, 10000, 5000)),
    _row("B200", _BLACKWELL, 8000, (40, 40, 80, 1100, 2250, 2250, 4500, 9000, 4500)),
    _row("GH200 144G HBM3e", _GH200, 4900, (34, 67, 67, 494, 990, 990, 1979, _, 1979)),
    _row("GH200 480GB", _GH200, 4000, (34, 67, 67, 494, 990, 990, 1979, _, 1979)),
    _row("H200 NVL", _H200, 4800, (30, 60, 60, 417.5, 835.5, 835.5, 1670.5, _, 1670.5)),
    _row("H200", _H200, 4800, (34, 67, 67, 494.5, 989.5, 989.5, 1979, _, 1979)),
    _row("H100 PCIe", _H100, 2000, (26, 51, 51, 378, 756.5, 756.5, 1513, _, 1513)),
    _row("H100 NVL", _H100, 3900, (30, 60, 60, 417.5, 835.5, 835.5, 1670.5, _, 1670.5)),
    _row("H100 80GB HBM3", _H100, 3350, (34, 67, 67, 494.5, 989.5, 989.5, 1979, _, 1979)),
    _row("A100 PCIE 40GB", _A100, 1555, (9.7, 19.5, 19.5, 156, 312, 312, _, _, 624)),
    _row("A100 SXM4 40GB", _A100, 1555, (9.7, 19.5, 19.5, 156, 312, 312, _, _, 624)),
    _row("A100 80GB PCIe", _A100, 1935, (9.7, 19.5, 19.5, 156, 312, 312, _, _, 624)),
    _row("A100 SXM4 80GB", _A100, 2039, (9.7, 19.5, 19.5, 156, 312, 312, _, _, 624)),
    _row("L40S", _L40S, 864, (_, _, 91.6, 183, 362.5, 362.5, 733, _, 733)),
    _row("L4", _L4, 300, (_, _, 30.3, 60, 121, 121, 242.5, _, 242.5)),
    _row("A10G", _A10G, 600, (_, _, 35, 35, 70, 70, _, _, 140)),
    _row("A10", _A10, 600, (_, _, 31.2, 62.5, 125, 125, _, _, 250)),
    _row("A30", _A30, 933, (5.2, 10.3, 10.3, 82, 165, 165, _, _, 330)),
    _row("A40", _A40, 696, (_, _, 37.4, 74.8, 149.7, 149.7, _, _, 299.3)),
    _row("RTX A6000", _GA102, 768, (_, _, 38.7, 77.4, 154.8, 154.8, _, _, 309.7)),
    _row("RTX 6000 Ada", _ADA, 960, (_, _, 91.1, 182.1, 364.2, 364.2, 728.5, _, 728.5)),
    _row("RTX 5090", _RTX_BLACKWELL, 1792, (_, _, 104.8, 104.8, 209.5, 209.5, 419, 1676, 838)),
    _row("RTX 4090", _ADA, 1008, (_, _, 82.6, 82.6, 165.2, 165.2, 330.3, _, 660.6)),
    _row("RTX 3090", _GA102, 936, (_, _, 35.6, 35.6, 71.2, 71.2, _, _, 284)),
    _row("V100S PCIE 32GB", _V100, 1134, (8.2, _, 16.4, _, _, 130, _, _, _)),
    _row("V100 PCIE", _V100, 900, (7, _, 14, _, _, 112, _, _, _)),
    _row("V100 SXM2", _V100, 900, (7.8, _, 15.7, _, _, 125, _, _, _)),
    _row("T4", _T4, 320, (_, _, 8.1, _, _, 65, _, _, 130)),
    _row("MI325X", _MI325X, 6000, (81.7, 163.4, 163.4, 653.7, 1307.4, 1307.4, 2614.9, _, 2614.9)),
    _row("MI300X", _MI300X, 5300, (81.7, 163.4, 163.4, 653.7, 1307.4, 1307.4, 2614.9, _, 2614.9)),
    _row("MI250X", _MI250, 1638, (23.95, 47.85, 23.95, _, 191.5, 191.5, _, _, 191.5)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Peak:
    """A device's peak, by its maker: dense, at boost clock."""

    gb_per_s: float  # memory bandwidth in 10^9 bytes a second
    # 10^12 operations a second, by :class:`Unit`; unknown ones are missing
    tflop_per_s: Mapping[str, float] = field(default_factory=dict)
    source: str = ""  # where the figures are from

    def of(self, unit: str | None) -> float | None:
        """Return the peak of a unit, ``None`` where there is none."""
        return None if unit is None else self.tflop_per_s.get(unit)


# Device to peak; the first that matches a name applies
PEAKS: Mapping[str, Peak] = {
    device.name: Peak(device.gb_per_s, {Unit(u): v for u, v in device.units}, device.source)
    for device in DEVICES
}


def peak_of(device: str, peaks: Mapping[str, Peak] = PEAKS) -> Peak | None:
    """Return a device's peak: the first entry all of whose words its name contains.

    ``None`` without an entry. Pass ``peaks`` of your own to correct or add a device; a slice of a
    device (MIG) needs an entry of its own.
    """
    words = _name_words(device)
    return next((peak for name, peak in peaks.items() if _names(_name_words(name), words)), None)


def _names(entry: frozenset[str], device: frozenset[str]) -> bool:
    return entry <= device and not (device - entry) & _OTHERS


def _name_words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", name.lower()))
