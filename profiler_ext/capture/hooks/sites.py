"""Owns the hooks that see each call site while Inductor writes a wrapper."""

from __future__ import annotations

from typing import Any

from profiler_ext.capture.graphs.compiles import Compiles
from profiler_ext.capture.sites import call_sites
from profiler_ext.capture.sites.call_sites import PendingSite
from profiler_ext.isolation.guard import Observation, Observed
from profiler_ext.recall.wrapper_calls import generated_kind, spelled_op
from profiler_ext.records import SiteKind
from profiler_ext.torch_compat import inductor, points
from profiler_ext.torch_compat.patches import Hook

_COMPUTED = "which nodes a kernel computes"


class SiteHooks:
    """Collects the call sites of what is compiled."""

    def __init__(self, compiles: Compiles) -> None:
        """Take where the sites are collected."""
        self._compiles = compiles

    def observations(self) -> list[Hook]:
        """Return what is observed where."""
        return [
            *((point, self._call_site) for point in points.CALL_SITES),
            (points.EXTERN_CALL, self._extern_call),
            (points.KERNEL_COMMENT, self._kernel_comment),
            (points.KERNEL_CALL, self._kernel_call),
            (points.COMBO_KERNELS, self._combo_kernels),
        ]

    def _call_site(self, call: Observed) -> Observation:
        is_extern = bool(call.arguments.get("is_extern", False))
        self._add_site(call["node_schedule"], call["kernel_name"], is_extern)
        yield

    def _add_site(self, schedule: Any, kernel: str, is_extern: bool = False) -> None:
        alone = self._compiles.alone
        if is_extern:
            site = alone(_COMPUTED, call_sites.extern_site, schedule, kernel)
        else:
            own = self._compiles.take_combo(schedule)
            site = alone(_COMPUTED, call_sites.generated_site, own, kernel, alone)
        self._compiles.add_site(site or _unknown_site(kernel, is_extern))

    def _extern_call(self, call: Observed) -> Observation:
        self._add_unreported(call["scheduler_node"])
        yield

    def _add_unreported(self, scheduler_node: Any) -> None:
        """Add what torch reports no call site of: some library calls, and nested graphs."""
        kernel = inductor.kernel_of(scheduler_node)
        if (call := call_sites.nested_call(kernel)) is not None:
            if len(call.graphs) > 1 and call.node is not None:
                self._compiles.add_site(call_sites.predicate_site(call.node))
            self._compiles.add_site(call)
        elif inductor.launches_without_comment(kernel):
            self._add_site(kernel, inductor.extern_name(kernel), is_extern=True)

    def _kernel_comment(self, call: Observed) -> Observation:
        """Keep a schedule whose kernel has no name yet."""
        yield
        if call.arguments.get("kernel_name", "") is None:
            self._compiles.keep_schedule(call["node_schedule"])

    def _kernel_call(self, call: Observed) -> Observation:
        if (schedule := self._compiles.take_schedule()) is not None:
            self._add_site(schedule, call["kernel_name"])
        yield

    def _combo_kernels(self, call: Observed) -> Observation:
        yield
        self._compiles.keep_combo(call["subkernel_nodes"], [nodes for _, _, nodes in call.result])


def _unknown_site(kernel: str, is_extern: bool) -> PendingSite:
    """Describe a launch of which it was not found out what it computes."""
    kind = SiteKind.EXTERN if is_extern else generated_kind(kernel)
    graph, op = inductor.current_fx_graph(), spelled_op(kernel) if is_extern else None
    return PendingSite(kind, kernel, op, (), graph=graph, is_commented=False, is_work_known=False)
