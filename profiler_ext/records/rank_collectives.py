"""Owns the collectives of one rank as columns: what is needed to lay ranks beside each other.

It is small enough that those of a thousand ranks fit into one process: 64 bytes a collective that
is one launch, and 20 for each part of it in which its device ran nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from profiler_ext.records.events import Codes, Interned, Ints


@dataclass(frozen=True, slots=True)
class RankCollectives:
    """The collectives that no rank can leave before every rank has come, on one rank.

    The first five columns have a row for each collective; those of ``launch_...`` one for each of
    its launches, collective after collective, those of ``exposed_...`` one for each part of a
    launch in which its device ran nothing else. All times are of the rank's wall clock.

    Attributes:
        rank: the rank.
        group: the process group, with its ranks where these are told.
        what: what it does, as torch calls it; where torch gave it no number, a digest of what all
            collectives of the group and step do.
        number: its number in the group; where torch gave it none, its place in group and step.
        step: of those without a number the step, of others -1.
        ranks: how many ranks the group has; -1 where that is not told.
        launch: row in ``Launches``.
        launch_collective: the collective that it is of.
        launch_device: the device.
        launch_start_ns: when it began.
        launch_duration_ns: how long it took.
        exposed_launch: index of the launch, among these.
        exposed_start_ns: from when the device ran nothing else.
        exposed_end_ns: until when.
        begin_ns: when the first step began; ``None`` where there is none.
    """

    rank: int
    group: Interned
    what: Interned
    number: Ints
    step: Codes
    ranks: Codes
    launch: Ints
    launch_collective: Codes
    launch_device: Codes
    launch_start_ns: Ints
    launch_duration_ns: Ints
    exposed_launch: Codes
    exposed_start_ns: Ints
    exposed_end_ns: Ints
    begin_ns: int | None

    def __len__(self) -> int:
        """Return the number of collectives."""
        return len(self.number)

    @property
    def nbytes(self) -> int:
        """How many bytes the columns take."""
        interned = (self.group.codes, self.what.codes)
        columns: tuple[npt.NDArray[Any], ...] = (
            *interned,
            self.number,
            self.step,
            self.ranks,
            self.launch,
            self.launch_collective,
            self.launch_device,
            self.launch_start_ns,
            self.launch_duration_ns,
            self.exposed_launch,
            self.exposed_start_ns,
            self.exposed_end_ns,
        )
        return sum(column.nbytes for column in columns)
