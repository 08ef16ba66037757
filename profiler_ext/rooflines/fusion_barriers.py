"""Why Inductor did not fuse two kernels: its scheduler's words, sorted into few kinds.

Source: the calls of ``WhyNoFuse`` in ``torch/_inductor/scheduler.py``, ``choices.py`` and
``codegen/simd.py``, torch 2.11 to 2.13. Words that are not known here stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from profiler_ext.records.provenance import CallSite
from profiler_ext.records.vocabulary import FusionBarrier, SiteKind

_AUTOTUNE = "max_autotune"
_TEMPLATED_OPS = ("mm", "addmm", "bmm", "baddbmm", "convolution", "_scaled_mm", "_grouped_mm")
"""Ops for which ``torch/_inductor/kernel`` has Triton templates."""


_BY_WORDS: Mapping[str, FusionBarrier] = MappingProxyType(
    {
        "memory deps did not match": FusionBarrier.ACCESS_ORDER,
        "no shared data": FusionBarrier.ACCESS_ORDER,
        "score_fusion_memory_threshold": FusionBarrier.ACCESS_ORDER,
        "tiling mismatch": FusionBarrier.ACCESS_ORDER,
        "invalid tiling for reduction": FusionBarrier.ACCESS_ORDER,
        "invalid loop order and tiling": FusionBarrier.ACCESS_ORDER,
        "numel/rnumel mismatch": FusionBarrier.LOOP_SIZES,
        "nodes numel": FusionBarrier.LOOP_SIZES,
        "intermediate nodes between": FusionBarrier.DEPENDENCY,
        "will create cycle": FusionBarrier.DEPENDENCY,
        "node1 must go before node2": FusionBarrier.DEPENDENCY,
        "exceeds max fusion": FusionBarrier.LIMIT,
        "Fusion will increase peak memory": FusionBarrier.LIMIT,
        "fusion_prevent_too_many_reads_and_writes": FusionBarrier.LIMIT,
        "Nodes are too far away": FusionBarrier.LIMIT,
        "register spilling": FusionBarrier.LIMIT,
        "prologue fusion": FusionBarrier.TEMPLATE,
        "template": FusionBarrier.TEMPLATE,
        "multi-output template": FusionBarrier.TEMPLATE,
        "node1's triton kernel": FusionBarrier.TEMPLATE,
        "epilogue reads": FusionBarrier.TEMPLATE,
        "node1 and node2 uses different buf layouts": FusionBarrier.TEMPLATE,
        "node1 is extern": FusionBarrier.LIBRARY_CALL,
        "node2 is extern": FusionBarrier.LIBRARY_CALL,
        "node1 is nop": FusionBarrier.KIND,
        "grouped node": FusionBarrier.KIND,
        "foreach": FusionBarrier.KIND,
        "candidate": FusionBarrier.KIND,
        "Split scan": FusionBarrier.KIND,
        "fusion for buffer explicit disabled": FusionBarrier.KIND,
        "device mismatch": FusionBarrier.KIND,
    }
)


def barrier_between(refusal: str | None, writer: CallSite, reader: CallSite) -> FusionBarrier:
    """Return the kind of a reason for which two kernels were not fused."""
    if SiteKind.EXTERN in (writer.kind, reader.kind):
        return FusionBarrier.LIBRARY_CALL
    if refusal is None:
        return FusionBarrier.NOT_GIVEN
    kinds = (kind for words, kind in _BY_WORDS.items() if refusal.startswith(words))
    return next(kinds, FusionBarrier.OTHER)


def can_be_template(site: CallSite) -> bool:
    """Tell whether Inductor has a Triton template for what a library call computes."""
    op = (site.op or "").removeprefix("aten::")
    return site.kind is SiteKind.EXTERN and op in _TEMPLATED_OPS


def library_call_text(options: tuple[str, ...], writer: CallSite, reader: CallSite) -> str:
    """Return why a library call cannot be fused, and whether a template could."""
    calls = [site for site in (writer, reader) if site.kind is SiteKind.EXTERN]
    fixed = [site for site in calls if not can_be_template(site)]
    names = " and ".join(dict.fromkeys(site.op or site.kernel for site in fixed or calls))
    if fixed:
        return f"{names}, for which Inductor has no template"
    if any(option.startswith(_AUTOTUNE) for option in options):
        return f"{names}, whose library kernel autotuning chose"
    return f"{names}, which a Triton template could compute (max_autotune is off)"
