"""Owns the table of places in the trace, to which the numbers in ``shares_ns`` lead.

A launch names its places by number, and a place is said once, so that the queries are exact
and the trace stays small.
"""

from __future__ import annotations

from profiler_ext.exporters.launch_places import module_text, node_text
from profiler_ext.exporters.perfetto.packets import PacketWriter, listed
from profiler_ext.exporters.perfetto.texts import Argument, present
from profiler_ext.exporters.perfetto.tracks import Tracks, profiler_group
from profiler_ext.records import Analysis, Place

PLACE = "place"
_PLACES_TRACK = "places (for the queries)"


def draw_places(writer: PacketWriter, tracks: Tracks, analysis: Analysis, start_ns: int) -> None:
    """Put every place on a track of its own, without a duration.

    Args:
        writer: encodes the slices.
        tracks: describes the track.
        analysis: the places.
        start_ns: when they stand.
    """
    settings = analysis.recording.settings
    rank = settings.rank if settings.world_size > 1 else None
    rows = (
        present({"place": number, "rank": rank, **_place_arguments(place)})
        for number, place in enumerate(analysis.places)
    )
    slices = listed(
        (start_ns, start_ns, writer.constant(node_text(place), PLACE, arguments))
        for place, arguments in zip(analysis.places, rows, strict=True)
    )
    tracks.draw(_PLACES_TRACK, profiler_group(tracks, settings), 0, slices)


def _place_arguments(place: Place) -> dict[str, Argument | None]:
    return {
        "node": place.node,
        "aten_op": place.aten_op,
        "phase": place.phase,
        "forward_node": place.forward_node,
        "file": place.file,
        "line": place.line,
        "function": place.function,
        "code": place.code,
        "user_file": place.user_file,
        "user_line": place.user_line,
        "caller_file": place.caller_file,
        "caller_line": place.caller_line,
        "module": module_text(place),
        "module_class": place.module_class,
        "mechanism": place.mechanism,
        "gap": place.gap,
    }
