"""What every screen says of the buffers between kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profiler_ext.records.fusion_barriers import FusionBarrier


def barrier_text(row: Mapping[str, Any]) -> str:
    """Return why the two kernels of a row of ``between_kernels`` were not fused."""
    barrier = FusionBarrier(row["barrier"])
    return barrier.label if row["reason"] == barrier.label else f"{barrier.label}: {row['reason']}"
