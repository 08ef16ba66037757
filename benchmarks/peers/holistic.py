"""Asks HolisticTraceAnalysis: time by kernel, steps, idle time by cause, communication.

Those are the analyses of its notebooks for one rank; what they draw is left out. Its sums of times
in floating point can come out a little below zero, which it asserts they do not, after all the work
is done: then ``idle_us`` is nothing. ``holistic.py FILE``, with a Python that has it.
"""

from __future__ import annotations

import json
import sys

from hta.trace_analysis import TraceAnalysis


def main() -> None:
    """Print what the recording shows."""
    analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, include_last_profiler_step=True)
    kinds, kernels = analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=10_000)
    idle = analysis.get_idle_time_breakdown(ranks=[0], visualize=False)[0]
    overlap = analysis.get_comm_comp_overlap(visualize=False)
    fields = {
        "steps": len(analysis.get_profiler_steps()),
        "kernels": len(kernels),
        "kernel_us": round(float(kinds["sum"].sum())),
        "idle_us": _idle_us(analysis),
        "rows": [len(idle), len(overlap)],
    }
    print(json.dumps(fields))


def _idle_us(analysis: TraceAnalysis) -> int | None:
    try:
        whole = analysis.get_temporal_breakdown(visualize=False)
    except AssertionError:
        return None
    return round(float(whole["idle_time(us)"].sum()))


if __name__ == "__main__":
    main()
