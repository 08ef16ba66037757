"""Owns the check of call sites against the generated code's own comments.

Above each launch Inductor writes the ATen ops of all nodes that it lists for it, a superset of
what the launch computes. A site whose nodes are not among them stands at the wrong launch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from profiler_ext.capture.sites.placing import PlacedSite
from profiler_ext.recall.wrapper_calls import WrapperCall
from profiler_ext.records import SiteKind
from profiler_ext.torch_compat import fx

_LIBRARY = (SiteKind.EXTERN, SiteKind.USER_TRITON)


def contradicted(
    sites: Sequence[PlacedSite], calls: Mapping[str, Sequence[WrapperCall]]
) -> frozenset[int]:
    """Find the call sites whose launch names other ops in its comment.

    Args:
        sites: in program order.
        calls: the launches in the wrapper's text, by function.

    Returns:
        Indices of sites. Where no comment stands, or the launches of a function are not as
        many as its sites, nothing is said.
    """
    called: dict[tuple[str, str], list[tuple[int, PlacedSite]]] = {}
    for at, placed in enumerate(sites):
        called.setdefault((placed.function, placed.prefix), []).append((at, placed))
    return frozenset(
        at
        for (function, _), own in called.items()
        for at, placed, call in _pairs(own, calls.get(function, ()))
        if placed.site.is_commented and call.ops and not call.ops >= _ops(placed)
    )


def _pairs(
    own: list[tuple[int, PlacedSite]], calls: Sequence[WrapperCall]
) -> Iterator[tuple[int, PlacedSite, WrapperCall]]:
    """Lead each site to its launch: by order among all, or among the generated kernels."""
    users = {placed.site.kernel for _, placed in own if placed.site.kind is SiteKind.USER_TRITON}
    if len(own) != len(calls):
        own = [(at, placed) for at, placed in own if placed.site.kind not in _LIBRARY]
        calls = [call for call in calls if call.generated and call.callee not in users]
    if len(own) == len(calls):
        yield from ((at, placed, call) for (at, placed), call in zip(own, calls, strict=True))


def _ops(placed: PlacedSite) -> frozenset[str]:
    ops: Iterable[str | None] = (fx.commented_op(node) for node in placed.site.nodes)
    return frozenset(op for op in ops if op is not None)
