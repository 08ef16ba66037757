"""The recorded window, which a trace's time axis shows, and Kineto's spans that outlast it.

Kineto's span of the recording goes on until the trace was processed, and its spans of user
annotations on a device until kernels that the recording leaves out. Drawn whole, they would double
the time axis.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from profiler_ext.kineto.names import Category
from profiler_ext.records.events import Events, flag_rows

_RECORDING = "Trace"  # the category of "PyTorch Profiler (0)"


def is_recording(events: Events) -> npt.NDArray[np.bool_]:
    """Flag Kineto's span of the recording, which is not drawn."""
    return flag_rows(events.category, lambda category: category == _RECORDING)


def end_ns(events: Events) -> int:
    """Return when the last event ended, other than Kineto's spans."""
    spans = (_RECORDING, Category.GPU_USER_ANNOTATION)
    inside = ~flag_rows(events.category, lambda category: category in spans)
    ends_ns = events.end_ns[inside if inside.any() else ~is_recording(events)]
    return int(ends_ns.max(initial=0))
