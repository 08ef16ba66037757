"""Owns the views that functionalization makes anew once their memory is mutated: where they stand.

Torch gives them the line and the number of the view, but the modules and the call of whatever is
the next to read it (``torch/fx/proxy.py``, "Functionalization View Replay Annotation"). A view of a
view is made anew with both; the chain of those that are replayed is that of the first ones.
"""

from __future__ import annotations

from profiler_ext.capture.lineage.joint_graph import Lineages
from profiler_ext.capture.lineage.stage import Stage
from profiler_ext.capture.traces.creations import Creations
from profiler_ext.recall.views import is_view_op
from profiler_ext.records import Lineage


def find_replayed_views(creations: Creations) -> Lineages:
    """Return where views were made that functionalization made anew, by the names of the new ones.

    Args:
        creations: how the nodes of a graph were made, in order.
    """
    replayed = [n for n, creation in creations.items() if creation.replays in creations]
    first = _original_views(creations, [n for n in replayed if is_view_op(creations[n].target)])
    places: dict[str, Lineage] = {}
    for name, was in first.items():  # what is made anew may be made anew once more
        places[name] = places.get(was) or creations[was].lineage
    return places


def _original_views(creations: Creations, views: list[str]) -> dict[str, str]:
    """Return which view each is made anew of: of a chain the last of what is replayed."""
    first = {name: creations[name].replays or "" for name in views}
    for name in reversed(views):
        for read, was in zip(creations[name].inputs, creations[first[name]].inputs, strict=False):
            if first.get(read) == first[name] and was in creations:
                first[read] = was
    return first


def replayed_view(stage: Stage) -> Lineages:
    """Say of a view that is made anew that it stands where it was made first."""
    known = stage.joint.findings.made_anew if stage.joint else {}
    names = {node.name: stage.compilation.traced_name(node) or "" for node in stage.nodes if known}
    return {
        name: stage.lineages[name].with_place_of(known[traced])
        for name, traced in names.items()
        if traced in known
    }
