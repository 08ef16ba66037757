"""Runs the mechanisms that look at one graph, each on its own, and notes which failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from profiler_ext.isolation.hook_protocols import TryRun, unguarded

T = TypeVar("T")

_LINKS = "forward nodes"
FINDING_LABELS = {
    "mutated": "where mutations of inputs come from",
    "overwritten": f"where nodes come from whose origin a pass overwrote, and {_LINKS}",
    "replaced": f"where nodes come from that passes made, and {_LINKS}",
    "creations": f"where gradients, their hooks and replayed views come from, and {_LINKS}",
    "replayed_views": f"where replayed views come from, and {_LINKS}",
    "gradients": f"where gradients come from that the function takes, their sums, and {_LINKS}",
    "links": _LINKS,
    "hooks": "where hooks on gradients come from",
    "random": "where random ops come from that are run again",
    "outputs": "where gradients of outputs come from",
    "bodies": "where nodes of backward bodies come from",
    "modules": "modules",
    "tensors": "which modules hold the inputs of parts",
    "runs": "which call of a region nodes are of",
    "inlined": "where nodes of carried graphs come from",
    "arguments": "where arguments come from",
}
"""What is lost with each finding, in the words of a gap."""

DEPENDENTS = {
    "creations": ("gradients", "hooks", "replayed_views"),
    "overwritten": ("links",),
    "replayed_views": ("links",),
    "replaced": ("links",),
    "gradients": ("links",),
    "links": ("bodies",),
    "modules": ("runs", "tensors"),
}
"""The findings that need another finding, and are lost with it."""


class Finders:
    """Runs the mechanisms that look at one graph."""

    def __init__(self, try_run: TryRun = unguarded) -> None:
        self._try_run = try_run
        self.lost: frozenset[str] = frozenset()  # the findings whose mechanism failed

    def find(self, finding: str, function: Callable[..., T], *args: Any) -> T | None:
        """Return what a mechanism finds; ``None`` if it fails or lacks what it needs."""
        if finding in self.lost:
            return None
        result = self._try_run(FINDING_LABELS[finding], function, *args)
        if result is None:
            self._mark_lost(finding)
        return result

    def _mark_lost(self, finding: str) -> None:
        self.lost |= {finding}
        for each in DEPENDENTS.get(finding, ()):
            self._mark_lost(each)
