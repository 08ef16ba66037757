"""Owns the communication of an analysis: how much of each collective was exposed, and who was late.

Device time of a collective is *exposed* where the device ran nothing else at the same time, and
*overlapped* where it did. Where several ranks are known together, on aligned clocks, a rank *waits*
from its own start of a collective to the start of the last rank's; the rest is the transfer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiler_ext.records.events import Codes, Interned, Ints, MaskedInts
from profiler_ext.records.places import Place


@dataclass(frozen=True, slots=True)
class Communication:
    """One row for each launch that communicates, in the order of the launches.

    Attributes:
        launch: row in ``Launches``.
        collective: ``allreduce``: what it does, as torch calls it; ``""`` where that is not told.
        process_group: the group that it was called on; ``""`` where that is not told.
        exposed_ns: how long the device ran nothing else meanwhile; the rest is overlapped. It is
            what the ledger has of it, but for what lies outside of the steps.
        waiting_ns: how long it waited for the last rank of its group, at most its duration; masked
            where not all ranks of the group are known, or the collective may begin without them.
        late_ns: how long another rank of the group had nothing to run but to wait when this one,
            the last, had not begun: of the one that waited longest so; 0 where another was the
            last, masked as ``waiting_ns``.
    """

    launch: Ints
    collective: Interned
    process_group: Interned
    exposed_ns: Ints
    waiting_ns: MaskedInts
    late_ns: MaskedInts

    def __len__(self) -> int:
        """Return the number of launches."""
        return len(self.launch)


@dataclass(frozen=True, slots=True)
class RankDelay:
    """What made a rank late for a collective, while another had nothing to run but to wait for it.

    It is what this rank spent more time in than that one, since both were last level: an estimate.
    The rows of a launch add up to its ``late_ns``.

    Attributes:
        launch: row in ``Launches`` of the collective to which this rank came last.
        cause: the ``IdleCause`` of that idle time; ``""`` where the device ran something else.
        place: index into ``places``: of what it ran, or of what it idled for.
        duration_ns: how long the other one waited because of that.
        places: what these point at.
    """

    launch: Ints
    cause: Interned
    place: Codes
    duration_ns: Ints
    places: tuple[Place, ...]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.launch)


_NONE = np.empty(0, dtype=np.int64)
_NO_STRINGS = Interned(np.empty(0, dtype=np.int32), ())
_UNKNOWN = np.ma.MaskedArray(_NONE, mask=np.empty(0, dtype=np.bool_))
NO_COMMUNICATION = Communication(_NONE, _NO_STRINGS, _NO_STRINGS, _NONE, _UNKNOWN, _UNKNOWN)
"""Of devices that run no collective."""
NO_RANK_DELAY = RankDelay(_NONE, _NO_STRINGS, np.empty(0, dtype=np.int32), _NONE, ())
"""Of a rank for which no other waited, or of which that is not known."""
