"""Owns the place of each call site: program order, with the sites of nested graphs in it.

A nested graph is generated once and may be called often; its sites stand at each call, so
that each launch has a site of its own. ``3/1`` is the second site of what site 3 calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch.fx

from profiler_ext.capture.lineage.bodies import inner_prefix
from profiler_ext.capture.sites.call_sites import PendingCall, PendingSite
from profiler_ext.records import NestedIn

Entries = Sequence[PendingSite | PendingCall]


@dataclass(frozen=True, slots=True)
class PlacedSite:
    """A pending site at its place.

    Attributes:
        site: the site.
        path: its place as a path through nested graphs.
        prefix: what names the graph that it stands in; ``""`` for the outermost.
        caller: the outermost graph's node that calls the nested graph, if it stands in one.
        function: name of the wrapper's function that it stands in; ``call`` for the outermost.
        within: the calls of nested graphs that it stands in, outermost first.
    """

    site: PendingSite
    path: str
    prefix: str = ""
    caller: torch.fx.Node | None = None
    function: str = "call"
    within: tuple[NestedIn, ...] = ()

    def without_nodes(self) -> PlacedSite:
        """Return the place of a site of which it is not known what it computes."""
        return replace(self, site=self._computing(()))

    def replacing_caller(self, node: torch.fx.Node, outer_site: PlacedSite) -> PlacedSite:
        """Return the place of a site that computes a node of the graph around it.

        Args:
            node: the node of the graph around.
            around: the place of that graph's call.
        """
        return replace(self, site=self._computing((node,)), prefix=outer_site.prefix)

    def _computing(self, nodes: tuple[torch.fx.Node, ...]) -> PendingSite:
        graph = nodes[0].graph if nodes else self.site.graph
        return replace(
            self.site, nodes=nodes, inlined=(), limits=(), graph=graph, is_commented=False
        )


def placed_sites(entries: Entries, entries_of: Callable[[Any], Entries]) -> list[PlacedSite]:
    """Return all sites of a graph in program order.

    Args:
        entries: the outermost graph's sites and calls, in order.
        entries_of: the same of a nested graph.
    """
    return list(_placed(entries, entries_of, PlacedSite(_NO_SITE, "")))


def _placed(
    entries: Entries, entries_of: Callable[[Any], Entries], outer_site: PlacedSite
) -> Iterator[PlacedSite]:
    for number, entry in enumerate(entries):
        path = f"{outer_site.path}/{number}" if outer_site.path else str(number)
        if isinstance(entry, PendingSite):
            yield replace(outer_site, site=entry, path=path)
            continue
        outer = entry.node.name if entry.node is not None else f"call_{number}"
        for nested in entry.graphs:
            prefix = outer_site.prefix + inner_prefix(outer, nested.name, len(entry.graphs))
            caller = outer_site.caller or entry.node
            within = (*outer_site.within, NestedIn(path, nested.part))
            inner = PlacedSite(_NO_SITE, path, prefix, caller, nested.function, within)
            inside = _placed(entries_of(nested.graph), entries_of, inner)
            if nested.replaces_caller and entry.node is not None:
                inside = (placed.replacing_caller(entry.node, outer_site) for placed in inside)
            yield from inside


_NO_SITE: Any = None
