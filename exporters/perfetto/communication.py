"""Owns what the slice of a collective says of it: how much was exposed, and for whom it waited."""

from __future__ import annotations

from profiler_ext.exporters.perfetto.texts import Argument
from profiler_ext.records import Analysis


def communication_arguments(analysis: Analysis) -> dict[int, dict[str, Argument | None]]:
    """Return the arguments of the launches that communicate, by their rows.

    Args:
        analysis: what attribution found.
    """
    found = analysis.communication
    durations_ns = analysis.launches.duration_ns[found.launch]
    columns = (
        found.launch,
        found.exposed_ns,
        durations_ns - found.exposed_ns,
        found.waiting_ns,
        found.late_ns,
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return {
        launch: {
            "collective": found.collective[row] or None,
            "process_group": found.process_group[row] or None,
            "exposed_ns": exposed_ns,
            "overlapped_ns": overlapped_ns,
            "waiting_ns": waiting_ns,
            "late_ns": late_ns,
        }
        for row, (launch, exposed_ns, overlapped_ns, waiting_ns, late_ns) in enumerate(rows)
    }
