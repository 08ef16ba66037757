"""What reading a recording takes: file to columns, by its events, plain and packed.

Recordings of 10,000 to 1,000,000 events (``--largest 10000000`` takes 4 GB of disk) are read, each
in a process of its own, whose start is not counted. The exponent of time by events is fitted as in
``benchmarks/growth.py``. Then ``torch.profiler`` records eager steps on the CPU, and reading what
it recorded is timed beside its own export, in the process that recorded.
Run: ``python -m benchmarks.reading [--largest N] [--rounds N]``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from benchmarks.figures import Figure, add_json, figure_of, tell
from benchmarks.growth import events_up_to, fitted
from benchmarks.processes import MIB, spent
from benchmarks.recordings import LAYERS, environment, folder
from benchmarks.tiling import tile
from profiler_ext.kineto.recording import read_recording

_STEPS, _OPS = 200, 200
_PACKED_LEVEL = 3
Result = TypeVar("Result")


class Read(NamedTuple):
    """What reading one file took, without the start of the process.

    Attributes:
        events: how many events it has.
        cpu_s: user and system time.
        peak_bytes: the most memory that the process had.
        text_bytes: size of the file, unpacked.
    """

    events: int
    cpu_s: float
    peak_bytes: int
    text_bytes: int


def main() -> None:
    """Measure each size, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recording", type=Path, default=LAYERS)
    parser.add_argument("--largest", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--after-a-profile", action="store_true", help=argparse.SUPPRESS)
    add_json(parser)
    options = parser.parse_args()
    if options.read or options.after_a_profile:
        reported = _read(options.read) if options.read else _after_a_profile()
        print(json.dumps(reported))
        return
    found = [figure for packed in (False, True) for figure in _by_events(options, packed)]
    tell([*found, *_compared_with_torch(options.rounds)], options.json)


def _by_events(options: argparse.Namespace, packed: bool) -> list[Figure]:
    """Return how time and memory of reading follow the events."""
    kind = "packed" if packed else "plain"
    sizes = [_size(options, events, packed) for events in events_up_to(options.largest)]
    fit = fitted([(run.events, run.cpu_s) for runs in sizes for run in runs])
    last = sizes[-1]
    range_of = f"{sizes[0][0].events:,} to {last[0].events:,} events, {kind}"
    runs = sum(map(len, sizes))
    return [
        Figure(f"{range_of}: exponent of time", fit.exponent, "", runs, (fit.low, fit.high)),
        figure_of(f"{last[0].events:,} events, {kind}: time", [run.cpu_s for run in last], "s"),
        figure_of(f"{kind}: peak memory", [run.peak_bytes / MIB for run in last], "MiB"),
        figure_of(
            f"{kind}: peak memory, of the text",
            [run.peak_bytes / run.text_bytes for run in last],
            "x",
        ),
    ]


def _size(options: argparse.Namespace, events: int, packed: bool) -> list[Read]:
    with folder() as made:
        path = made / "tiled.pt.trace.json"
        tile(options.recording, path, events)
        size = path.stat().st_size
        if packed:
            path = _packed(path)
        found = [_in_a_process("--read", str(path)) for _ in range(options.rounds)]
    runs = [Read(int(count), cpu_s, int(peak), size) for count, cpu_s, peak in found]
    print(
        f"{runs[0].events:>12,} events, {path.suffix}: {min(r.cpu_s for r in runs):.3f} s",
        flush=True,
    )
    return runs


def _packed(path: Path) -> Path:
    packed = path.with_name(path.name + ".gz")
    with path.open("rb") as text, gzip.open(packed, "wb", _PACKED_LEVEL) as file:
        shutil.copyfileobj(text, file, MIB)
    path.unlink()
    return packed


def _in_a_process(*arguments: str) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.reading", *arguments]
    answer: list[float] = json.loads(spent(command, env=environment()).output.splitlines()[-1])
    return answer


def _read(path: Path) -> tuple[int, float, int]:
    seconds, recording = _timed(lambda: read_recording(path))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return len(recording.trace.raw), seconds, peak


def _compared_with_torch(rounds: int) -> list[Figure]:
    runs = [_in_a_process("--after-a-profile") for _ in range(rounds)]
    ratios = [reading / export for _, export, reading in runs]
    return [
        figure_of(
            f"after a profile of {runs[0][0]:,} events: torch's export", [r[1] for r in runs], "s"
        ),
        figure_of("after a profile: our reading", [r[2] for r in runs], "s"),
        figure_of("after a profile: our reading, of torch's export", ratios, "x"),
    ]


def _after_a_profile() -> tuple[int, float, float]:
    import torch

    value = torch.ones(8)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for step in range(_STEPS):
            with torch.profiler.record_function(f"ProfilerStep#{step}"):
                for _ in range(_OPS):
                    value = value.add(1)
    with folder() as made:
        path = made / "trace.json"
        export, _ = _timed(lambda: profile.export_chrome_trace(str(path)))
        reading, recording = _timed(lambda: read_recording(path))
    return len(recording.trace.raw), export, reading


def _timed(work: Callable[[], Result]) -> tuple[float, Result]:
    begun = time.process_time()
    result = work()
    return time.process_time() - begun, result


if __name__ == "__main__":
    main()
