"""Owns what torch's two caches did for a graph, in words."""

from __future__ import annotations

from profiler_ext.capture.graphs.compiles import InnerCompile
from profiler_ext.records import CacheState
from profiler_ext.torch_compat import inductor


def cache_state(
    inner: InnerCompile | None, key: str | None, autograd_bypass: str | None
) -> tuple[CacheState, str]:
    """Return how a graph came to be, and what each cache did, with torch's reason for a bypass.

    Args:
        inner: the compile around it; ``None`` where AOTAutograd's cache had it, or a saved
            artifact was loaded.
        key: its FX graph cache key, ``None`` where that cache was bypassed.
        autograd_bypass: why AOTAutograd's cache was bypassed, if it was.
    """
    if inner is None:
        return CacheState.AOT_HIT, "AOTAutograd's cache: hit"
    state, fx_detail = _fx_state(inner, key)
    autograd_detail = f"bypass ({autograd_bypass})" if autograd_bypass else _autograd_state()
    return state, f"FX graph cache: {fx_detail}; AOTAutograd's cache: {autograd_detail}"


def is_compiled_in_child(inner: InnerCompile, key: str | None) -> bool:
    """Tell whether a graph is no cache hit, and yet this process did not compile it.

    Args:
        inner: the compile that ended, if one was seen.
        key: the graph's FX graph cache key, ``None`` when bypassed.
    """
    if inner.is_compiled or not inductor.compiles_in_child():
        return False
    return key is None or inductor.cache_misses() > inner.misses


def _fx_state(inner: InnerCompile, key: str | None) -> tuple[CacheState, str]:
    if not inner.is_compiled and not is_compiled_in_child(inner, key):
        return CacheState.FX_HIT, "hit"
    if key is not None:
        return CacheState.MISS, "miss"
    if inner.bypass is not None:
        return CacheState.BYPASS, f"bypass ({inner.bypass})"
    return CacheState.BYPASS, "not asked" if inductor.caches_enabled() else "off"


def _autograd_state() -> str:
    return "miss" if inductor.autograd_cache_enabled() else "off"
