"""Asks profiler_ext: time by kernel and op, by line and module, steps, idle, communication.

Lines and modules are more than is asked of the peers, none of which has those of compiled work.
``python -m benchmarks.peers.ours FILE``.
"""

from __future__ import annotations

import json
import sys

import profiler_ext


def main() -> None:
    """Print what the recording shows."""
    session = profiler_ext.load(sys.argv[1])
    by_line, by_kernel = session.by_line(), session.by_kernel()
    by_module, by_op = session.by_module(), session.by_op()
    breakdown, communication = session.coverage(), session.communication()
    idle = session.idle_by_cause()
    (analysis,) = session.analyses
    fields = {
        "launches": len(analysis.launches),
        "steps": len(analysis.steps),
        "kernels": len(by_kernel),
        "ops": len(by_op),
        "lines": len(by_line),
        "modules": len(by_module),
        "kernel_us": round(int(by_kernel["duration_ns"].sum()) / 1e3),
        "idle_us": round(int(idle["duration_ns"].sum()) / 1e3),
        "rows": [len(breakdown), len(communication)],
    }
    print(json.dumps(fields))


if __name__ == "__main__":
    main()
