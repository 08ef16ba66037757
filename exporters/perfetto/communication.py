"""Owns what the slice of a collective says of it: how much was exposed, and for whom it waited."""

from __future__ import annotations

from profiler_ext.exporters.perfetto.packets import Argument
from profiler_ext.records import Analysis


class CommunicationArguments:
    """Answers what the slices of launches that communicate say besides."""

    def __init__(self, analysis: Analysis) -> None:
        """Take what is known of communication.

        Args:
            analysis: what attribution found.
        """
        self._found, self._duration_ns = analysis.communication, analysis.launches.duration_ns
        self._rows = {launch: row for row, launch in enumerate(self._found.launch.tolist())}

    def arguments(self, launch: int) -> dict[str, Argument | None]:
        """Return the arguments of a launch; none of one that does not communicate.

        Args:
            launch: its row.
        """
        row, found = self._rows.get(launch), self._found
        if row is None:
            return {}
        exposed_ns = int(found.exposed_ns[row])
        return {
            "collective": found.collective[row] or None,
            "process_group": found.process_group[row] or None,
            "exposed_ns": exposed_ns,
            "overlapped_ns": int(self._duration_ns[launch]) - exposed_ns,
            "waiting_ns": found.waiting_ns[row : row + 1].tolist()[0],
            "late_ns": found.late_ns[row : row + 1].tolist()[0],
        }
