"""Owns the hooks that see each call site while Inductor writes a wrapper."""

from __future__ import annotations

from typing import Any

from profiler_ext.capture.graphs.compiles import Compiles
from profiler_ext.capture.observing import Arguments, Around, Keywords, Observer
from profiler_ext.capture.sites import call_sites
from profiler_ext.torch_compat import inductor, points
from profiler_ext.torch_compat.patches import Call


class SiteHooks:
    """Collects the call sites of what is compiled."""

    def __init__(self, observe: Observer, compiles: Compiles) -> None:
        """Take where the sites are collected."""
        self._observe = observe
        self._compiles = compiles

    def arounds(self) -> list[Around]:
        """Return what is wrapped, and what is called in its place."""
        return [
            *((point, self._call_site) for point in points.CALL_SITES),
            (points.EXTERN_CALL, self._extern_call),
            (points.KERNEL_COMMENT, self._kernel_comment),
            (points.KERNEL_CALL, self._kernel_call),
            (points.COMBO_KERNELS, self._combo_kernels),
        ]

    def _call_site(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        self._observe(self._add_site, *args, *kwargs.values())
        return original(*args, **kwargs)

    def _add_site(self, schedule: Any, kernel: str, is_extern: bool = False) -> None:
        if is_extern:
            self._compiles.add_site(call_sites.extern_site(schedule, kernel))
        else:
            own = self._compiles.take_combo(schedule)
            self._compiles.add_site(call_sites.generated_site(own, kernel))

    def _extern_call(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        self._observe(self._add_unreported, *args[1:2], *kwargs.values())
        return original(*args, **kwargs)

    def _add_unreported(self, scheduler_node: Any) -> None:
        """Add what torch reports no call site of: some library calls, and nested graphs."""
        kernel = scheduler_node.node
        if (call := call_sites.nested_call(kernel)) is not None:
            if len(call.graphs) > 1 and call.node is not None:
                self._compiles.add_site(call_sites.predicate_site(call.node))
            self._compiles.add_site(call)
        elif inductor.launches_silently(kernel):
            site = call_sites.extern_site(kernel, inductor.extern_name(kernel))
            self._compiles.add_site(site)

    def _kernel_comment(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        result = original(*args, **kwargs)
        if len(args) > 2 and args[2] is None:
            self._compiles.keep_schedule(args[1])
        return result

    def _kernel_call(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        if (schedule := self._compiles.take_schedule()) is not None:
            self._observe(self._add_site, schedule, args[1])
        return original(*args, **kwargs)

    def _combo_kernels(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        made = original(*args, **kwargs)
        self._observe(self._keep_combo, made, *args[1:2], *kwargs.values())
        return made

    def _keep_combo(self, made: Any, combined: Any, *_: Any) -> None:
        self._compiles.keep_combo(combined, [nodes for _, _, nodes in made])
