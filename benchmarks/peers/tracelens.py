"""Asks AMD's TraceLens: time by the op that launches, by kernel, and of the device by what it did.

Of its standard report those sheets; it does not tell steps apart. ``tracelens.py FILE``,
with a Python that has it.
"""

from __future__ import annotations

import json
import sys

from TraceLens import TreePerfAnalyzer


def main() -> None:
    """Print what the recording shows."""
    analyzer = TreePerfAnalyzer.from_file(sys.argv[1], add_python_func=False)
    timeline = analyzer.get_df_gpu_timeline()
    launchers = analyzer.get_df_kernel_launchers(include_kernel_details=True)
    ops = analyzer.get_df_kernel_launchers_summary(launchers)
    categories = analyzer.get_df_kernel_launchers_summary_by_category(launchers)
    times = dict(zip(timeline["type"], timeline["time ms"], strict=True))
    fields = {
        "ops": len(ops),
        "kernel_us": round(1e3 * times["busy_time"]),
        "idle_us": round(1e3 * times["idle_time"]),
        "rows": [len(timeline), len(launchers), len(categories)],
    }
    print(json.dumps(fields))


if __name__ == "__main__":
    main()
