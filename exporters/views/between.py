"""What every screen says of the buffers between kernels."""

from __future__ import annotations

from profiler_ext.records.vocabulary import FusionBarrier


def barrier_name(barrier: str, reason: str) -> str:
    """Return why two kernels were not fused: the kind of the reason, and torch's words."""
    label = FusionBarrier(barrier).label
    return label if reason == label else f"{label}: {reason}"
