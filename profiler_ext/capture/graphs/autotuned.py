"""What autotuning timed and chose, by the call sites that run the choice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from profiler_ext.capture.graphs.call_sites import PendingSite
from profiler_ext.records.provenance import Autotuned
from profiler_ext.records.vocabulary import ChoiceKind, SiteKind
from profiler_ext.torch_compat.autotuning import Selection, Selections

_KEPT = 24
"""Choices that are no library call: a search of all configurations times thousands."""


def autotuned_sites(
    sites: Iterable[PendingSite], selections: Iterable[Selections]
) -> tuple[Autotuned, ...]:
    """Return what was timed for call sites; equal layers choose among the same, and are one.

    Args:
        selections: of the graph that each site is in.
    """
    alike: dict[Autotuned, list[int]] = {}
    measured = set[Autotuned]()
    for ordinal, (site, of_graph) in enumerate(zip(sites, selections, strict=True)):
        for selection in filter(None, map(of_graph.of, sorted(site.operations))):
            alike.setdefault(tuned := _autotuned(selection, site), []).append(ordinal)
            # Torch measures for the first op of some shapes, and finds the others in its cache
            measured |= {tuned} if selection.is_measured else set()
    return tuple(
        replace(each, sites=tuple(own), is_cached=each not in measured)
        for each, own in alike.items()
    )


def _autotuned(selection: Selection, site: PendingSite) -> Autotuned:
    chosen, kept = chosen_name(selection, site), list[str]()
    slots = iter(range(_KEPT))
    for name, choice in selection.timed.items():
        if choice.kind is ChoiceKind.LIBRARY or name == chosen or next(slots, None) is not None:
            kept.append(name)
    return Autotuned(
        sites=(),
        choices=tuple(selection.timed[name] for name in kept),
        chosen=None if chosen is None else kept.index(chosen),
        others=len(selection.timed) - len(kept),
    )


def chosen_name(selection: Selection, site: PendingSite) -> str | None:
    """Return torch's name of the choice that a call site runs; a library's shows in its call.

    Torch does not report which library call the scheduler chose, and may replace a choice.
    """
    is_library = site.kind is SiteKind.EXTERN
    timed = selection.timed.items()
    fitting = [n for n, choice in timed if (choice.kind is ChoiceKind.LIBRARY) is is_library]
    if selection.chosen in fitting:
        return selection.chosen
    named = [name for name in fitting if site.kernel.rpartition(".")[2] == name]
    only = named or fitting
    return only[0] if is_library and len(only) == 1 else None
