"""A kernel that seeks points which lie far from each other, for machines with Triton."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["furthest_in_one"]


@triton.jit
def furthest_kernel(xyz, out, points, chosen, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """One cloud per program: its points stay in registers."""
    cloud = tl.program_id(0)
    place = tl.arange(0, block)
    inside = place < points
    base = xyz + cloud * points * 3
    x = tl.load(base + place * 3, mask=inside, other=0.0)
    y = tl.load(base + place * 3 + 1, mask=inside, other=0.0)
    z = tl.load(base + place * 3 + 2, mask=inside, other=0.0)
    nearest = tl.where(inside, 1e10, -1.0)
    far = cloud * 0
    for index in range(chosen):
        tl.store(out + cloud * chosen + index, far.to(tl.int64))
        a = x - tl.load(base + far * 3)
        b = y - tl.load(base + far * 3 + 1)
        c = z - tl.load(base + far * 3 + 2)
        nearest = tl.minimum(nearest, a * a + b * b + c * c)
        far = tl.argmax(nearest, 0).to(tl.int32)


def furthest_in_one(xyz: Tensor, chosen: int) -> Tensor:
    """Points of (clouds, points, 3) that lie far from each other, by one kernel."""
    out = torch.empty(xyz.shape[0], chosen, dtype=torch.int64, device=xyz.device)
    block = triton.next_power_of_2(xyz.shape[1])
    furthest_kernel[(xyz.shape[0],)](xyz.contiguous(), out, xyz.shape[1], chosen, block)
    return out
