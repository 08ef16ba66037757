"""What torch's own provenance (level 2) places of the launches that we attribute.

Torch keeps with each artifact, for each call of a kernel, the stacks of the nodes that it lists
for it. A trace has only the kernel's name, or for a library call the operator's: a launch is
placed where all calls of that name, in all graphs, have the same source lines.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

import numpy as np

from profiler_ext.attribution.places import SourceRoots
from profiler_ext.capture.traces.stack_traces import parse_stack
from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.lineage import Frame
from profiler_ext.records.recording import Settings
from profiler_ext.source_paths import expand
from profiler_ext.torch_compat import points
from profiler_ext.torch_compat.patches import Patch

Lines = frozenset[tuple[str, int]]
_GENERATED = ("triton", "triton_template", "cpp")


class TorchProvenance:
    """The source lines that torch lists for each name, over all graphs that are compiled."""

    def __init__(self) -> None:
        self._roots = SourceRoots(Settings())
        self._seen: dict[str, set[Lines]] = defaultdict(set)

    @staticmethod
    def is_on() -> bool:
        """Tell whether torch records it in this process."""
        return os.environ.get("INDUCTOR_PROVENANCE") == "2"

    def watch(self) -> None:
        """Read what torch keeps with each graph that is compiled or loaded from now on."""
        Patch(points.ARTIFACT_READY, self._ready, Guard(strict=True)).install()

    def add(self, traces: Mapping[str, Iterable[str]]) -> None:
        """Add a graph's ``kernel:call`` to stacks."""
        for call, stacks in traces.items():
            frames = (self._roots.model_frame(_stack(text)) for text in stacks)
            lines = frozenset((PurePath(f.file).name, f.line) for f in frames if f is not None)
            self._seen[_event_name(call.rpartition(":")[0])].add(lines)

    def lines_of(self, name: str) -> Lines:
        """Return the lines that a name leads to; empty where that is none or not only one set."""
        found = self._seen.get(name, set())
        return next(iter(found)) if len(found) == 1 else frozenset()

    def _ready(self, call: Observed) -> Observation:
        self.add(json.loads(call["self"].inductor_provenance_stack_traces_str or "{}"))
        yield


@dataclass(frozen=True, slots=True)
class Compared:
    """What torch's own provenance places of the compiled graphs' device time.

    Attributes:
        placed: the part of it that it places.
        agreeing: the part of it that it places on our lines.
        differing: for each name that it places on others, its lines and ours.
    """

    placed: float
    agreeing: float
    differing: Mapping[str, tuple[list[tuple[str, int]], list[tuple[str, int]]]]


def placed_by_torch(
    analysis: Analysis, torchs: TorchProvenance, ours: Mapping[int, Lines]
) -> Compared:
    """Return what torch places.

    Args:
        analysis: the attributed recording.
        torchs: what torch lists.
        ours: the lines that we lead each launch to.
    """
    launches, names = analysis.launches, analysis.recording.trace.events.name
    compiled = np.flatnonzero(~np.ma.getmaskarray(launches.graph))
    total = placed = agreeing = 0
    differing = {}
    for row in map(int, compiled):
        duration_ns, op = int(launches.duration_ns[row]), launches.op_event[row]
        is_generated = launches.kind[row] in _GENERATED
        name = launches.name[row] if is_generated else "" if op is np.ma.masked else names[op]
        found, mine = torchs.lines_of(name), ours.get(row, frozenset())
        total += duration_ns
        placed += duration_ns * bool(found)
        agreeing += duration_ns * bool(found and found == mine)
        if found and found != mine:
            differing[name] = (sorted(found), sorted(mine))
    return Compared(placed / total if total else 0.0, agreeing / total if total else 0.0, differing)


def lines_of_launches(attribution: Any) -> dict[int, Lines]:
    """Return the lines of each launch in a table of attribution."""
    attributed = attribution[attribution.line.notna()]
    pairs: dict[int, set[tuple[str, int]]] = defaultdict(set)
    for launch, file, line in zip(attributed.launch, attributed.file, attributed.line, strict=True):
        pairs[int(launch)].add((PurePath(file).name, int(line)))
    return {launch: frozenset(lines) for launch, lines in pairs.items()}


def _stack(text: str) -> tuple[Frame, ...]:
    return tuple(replace(frame, file=expand(frame.file)) for frame in parse_stack(text))


def _event_name(kernel: str) -> str:
    """Return what the trace calls it: ``aten::mm`` for ``extern_kernels.mm``."""
    parts = kernel.removeprefix("torch.ops.").split(".")
    if len(parts) < 2:
        return kernel
    return f"{'aten' if parts[0] == 'extern_kernels' else parts[0]}::{parts[1]}"
