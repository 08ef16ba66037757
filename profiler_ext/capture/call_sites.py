"""Owns the call sites of a graph while Inductor writes its wrapper, in program order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch.fx

from profiler_ext.capture import cost
from profiler_ext.capture.exact_nodes import exact_nodes
from profiler_ext.records import CallSite, SiteKind
from profiler_ext.torch_compat import fx, inductor


@dataclass(frozen=True, slots=True)
class PendingSite:
    """A call site with its live FX nodes, until the graph is sealed."""

    kind: SiteKind
    kernel: str
    op: str | None
    nodes: tuple[torch.fx.Node, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    def sealed(self, ordinal: int) -> CallSite:
        """Return the site as a record at its place in program order."""
        flops = sum(cost.operations(node) for node in self.nodes if not cost.is_view(node))
        return CallSite(
            ordinal=ordinal,
            path=str(ordinal),
            kind=self.kind,
            kernel=self.kernel,
            op=self.op,
            nodes=tuple(node.name for node in self.nodes),
            weights=cost.weights(self.nodes),
            reads=self.reads,
            writes=self.writes,
            bytes_moved=str(cost.moved_bytes(self.nodes)),
            flops=str(flops),
        )


def generated_site(node_schedule: Iterable[Any], kernel: str) -> PendingSite:
    """Describe the launch of a kernel that Inductor generated."""
    scheduled = list(inductor.scheduled_nodes(node_schedule))
    nodes: set[torch.fx.Node] = set()
    for one in scheduled:
        nodes |= exact_nodes(one.origins, one.written, one.read, lambda n: n.all_input_nodes)
    written = {name for one in scheduled for name in one.writes}
    read = {name for one in scheduled for name in one.reads} - written
    ordered = _in_graph_order(nodes)
    return PendingSite(
        _generated_kind(kernel), kernel, None, ordered, tuple(sorted(read)), tuple(sorted(written))
    )


def extern_site(kernel: Any, name: str) -> PendingSite:
    """Describe the call of a library, or of a Triton kernel that the user wrote."""
    origin = inductor.extern_origin(kernel)
    nodes = {origin} if origin is not None else _last_of(inductor.extern_origins(kernel))
    user_triton = inductor.is_user_triton(kernel)
    return PendingSite(
        kind=SiteKind.USER_TRITON if user_triton else SiteKind.EXTERN,
        kernel=name,
        op=None if user_triton else inductor.extern_op(kernel) or _spelled(name),
        nodes=_in_graph_order(nodes),
        reads=inductor.extern_reads(kernel),
        writes=(kernel.get_name(),),
    )


def partial_sum_site(node: torch.fx.Node, buffer: str, operation: str) -> PendingSite:
    """Describe the eager reduction that finishes a mix-order reduction's partial values."""
    op = f"aten::{operation}"
    return PendingSite(SiteKind.EXTERN, op, op, (node,), (), (buffer,))


def _generated_kind(kernel: str) -> SiteKind:
    if kernel.startswith("cpp"):
        return SiteKind.CPP
    return SiteKind.TRITON_TEMPLATE if kernel.startswith("triton_tem") else SiteKind.TRITON


def _spelled(name: str) -> str | None:
    """``extern_kernels.mm`` and ``aten.sort.default`` as the profiler spells them."""
    parts = name.removeprefix("torch.ops.").split(".")
    if parts[0] == "extern_kernels":
        return f"aten::{parts[-1]}"
    return f"{parts[0]}::{parts[1]}" if len(parts) >= 2 else None


def _last_of(origins: frozenset[torch.fx.Node]) -> set[torch.fx.Node]:
    """The nodes whose value leaves the set: what a call yields."""
    called = {node for node in origins if node.op == "call_function"}
    return {node for node in called if not set(node.users) & called}


def _in_graph_order(nodes: set[torch.fx.Node]) -> tuple[torch.fx.Node, ...]:
    return tuple(sorted((n for n in nodes if n.op == "call_function"), key=fx.position))
