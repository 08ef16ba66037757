"""Owns which launches belong to one call: of a call site, or of an eager op.

A call of a library may run several kernels; what is known of the call belongs to all of them. They
share it in proportion to their time, so that the parts of a call's launches add up to the call's,
and each launch has the rate of the call.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiler_ext.records import Analysis, Ints, MaskedInts

Rows = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Calls:
    """Which launches belong to one call.

    Attributes:
        number: the call of each launch.
        last: one launch of each call, to which rounding goes.
    """

    number: Ints
    last: Ints

    def total(self, values: Ints) -> Ints:
        """Return the sum over its call for each launch."""
        sums = np.zeros(len(self.last), np.int64)
        np.add.at(sums, self.number, values)
        return sums[self.number]

    def share(self, amount: MaskedInts, duration_ns: Ints) -> MaskedInts:
        """Share a call's amount among its launches by time.

        Args:
            amount: what each launch's call has as a whole.
            duration_ns: the time of each launch.

        Returns:
            The part of each launch; those of a call add up to its amount.
        """
        call_amount = amount.filled(0)
        took_ns = np.maximum(self.total(duration_ns), 1)
        parts = np.floor(call_amount * (duration_ns / took_ns)).astype(np.int64)
        parts[self.last] += (call_amount - self.total(parts))[self.last]
        return np.ma.MaskedArray(parts, np.ma.getmaskarray(amount))


def calls_of(analysis: Analysis, is_library: Rows, is_eager: Rows) -> Calls:
    """Tell calls apart: launches of a library's site, or of an eager op, that follow each other.

    A generated kernel is a call by itself.

    Args:
        analysis: what attribution found.
        is_library: the launches of sites that call a library.
        is_eager: the launches of eager ops.
    """
    launches = analysis.launches
    stream, op = launches.stream.filled(-1), launches.op_event.filled(-1)
    grouped = is_library | (is_eager & (op >= 0))
    order = np.lexsort((launches.start_ns, stream, launches.device, ~grouped))
    of_op = np.where(is_eager, op, -1)
    same = (launches.device, stream, launches.graph.data, launches.call_site.data, of_op)
    key = np.column_stack(same)[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (key[1:] != key[:-1]).any(axis=1) | ~grouped[order][1:]
    begins |= _is_repeated(analysis, order, begins) & is_library[order]
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(begins) - 1
    return Calls(number, order[np.append(begins, True)[1:]])


def _is_repeated(analysis: Analysis, order: Ints, begins: Rows) -> Rows:
    """Whether a launch repeats the first of its run: the site is called again."""
    launches, events = analysis.launches, analysis.recording.trace.events
    first = order[np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))]
    op = launches.op_event.filled(-1)
    called = np.where(op < 0, -1, np.append(events.name.codes, -1)[op])
    kernel = launches.name.codes
    is_repeat = (op[order] != op[first]) & (called[order] == called[first])
    repeated: Rows = is_repeat & (kernel[order] == kernel[first])
    return repeated
