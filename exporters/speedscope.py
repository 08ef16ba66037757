"""Flame graphs for speedscope: stacks of phase, modules, line and kernel, weighted by device time.

Each recorded step is a profile, whose samples are the device's work in the order in which it began;
their weights add up to the step's device time exactly. Idle time is in none. The format is
https://www.speedscope.app/file-format-schema.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from profiler_ext.exporters.launch_parts import THE_MODEL, line_text, op_text
from profiler_ext.exporters.views.formatting import gap_text, short_kernel
from profiler_ext.file_io import replacing
from profiler_ext.records.analysis import Analysis, Place
from profiler_ext.records.events import Ints
from profiler_ext.version import VERSION

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def export_speedscope(analysis: Analysis, path: Path) -> Path:
    """Write a profile of each recorded step; without a step, one of all launches."""
    return export_ranks([analysis], path)


def export_ranks(analyses: Sequence[Analysis], path: Path) -> Path:
    """Write a profile of each step of each rank."""
    frames = _Frames()
    profiles = [profile for each in analyses for profile in _profiles(each, frames, len(analyses))]
    document = {
        "$schema": _SCHEMA,
        "shared": {"frames": frames.listed},
        "profiles": profiles,
        "name": path.name,
        "activeProfileIndex": 0,
        "exporter": f"profiler_ext@{VERSION}",
    }
    with replacing(path) as file:
        file.write(json.dumps(document, separators=(",", ":")).encode())
    return path


def how_to_view(path: Path) -> tuple[str, ...]:
    """Return where to open a file."""
    return (f"open {path.name} at https://www.speedscope.app; it stays on this machine",)


class _Frames:
    """The distinct frames of all profiles, numbered."""

    def __init__(self) -> None:
        self.listed: list[dict[str, str | int]] = []
        self._numbers: dict[tuple[object, ...], int] = {}

    def number(self, name: str, file: str | None = None, line: int | None = None) -> int:
        """Return the number of a frame."""
        key = (name, file, line)
        if key not in self._numbers:
            self._numbers[key] = len(self.listed)
            place = {"file": file, "line": line}
            known = {each: value for each, value in place.items() if value is not None}
            self.listed.append({"name": name, **known})
        return self._numbers[key]


def _profiles(analysis: Analysis, frames: _Frames, ranks: int) -> Iterable[dict[str, Any]]:
    launches, shares = analysis.launches, analysis.shares
    step_of_share = launches.step.filled(-1)[shares.launch]
    stacks = _Stacks(analysis, frames)
    of_rank = f"rank {analysis.recording.settings.rank}, " if ranks > 1 else ""
    for step in analysis.steps:
        rows = np.flatnonzero(step_of_share == step.number)
        yield stacks.profile(f"{of_rank}step {step.number}", rows)
    if not analysis.steps:
        yield stacks.profile(f"{of_rank}all launches", np.arange(len(shares)))


class _Stacks:
    """The stack of each share of a launch: phase, modules, line (or op, or gap), kernel."""

    def __init__(self, analysis: Analysis, frames: _Frames) -> None:
        self._analysis, self._frames = analysis, frames
        self._outer = [_outer_frames(place, frames) for place in analysis.places]
        self._kernels = analysis.launches.kernel_or_name
        self._kernel_frames: dict[str, int] = {}

    def profile(self, name: str, rows: Ints) -> dict[str, Any]:
        """Return the profile of some shares; a stack that follows itself is one sample."""
        shares = self._analysis.shares
        columns = (shares.launch[rows], shares.place[rows], shares.duration_ns[rows])
        samples: list[tuple[int, ...]] = []
        weights: list[int] = []
        for launch, place, duration_ns in zip(*(each.tolist() for each in columns), strict=True):
            stack = (*self._outer[place], self._kernel_frame(launch))
            if samples and samples[-1] == stack:
                weights[-1] += duration_ns
            else:
                samples.append(stack)
                weights.append(duration_ns)
        return {
            "type": "sampled",
            "name": name,
            "unit": "nanoseconds",
            "startValue": 0,
            "endValue": sum(weights),
            "samples": samples,
            "weights": weights,
        }

    def _kernel_frame(self, launch: int) -> int:
        name = self._kernels[launch]
        if name not in self._kernel_frames:
            self._kernel_frames[name] = self._frames.number(short_kernel(name))
        return self._kernel_frames[name]


def _outer_frames(place: Place, frames: _Frames) -> tuple[int, ...]:
    """Return the frames above the kernel."""
    names = [place.phase.value, *_modules(place.module)]
    line = line_text(place)
    if line is None:
        last = frames.number(op_text(place) or f"({gap_text(place.gap or 'unknown')})")
    else:
        last = frames.number(line, place.file, place.line)
    return (*map(frames.number, names), last)


def _modules(path: str | None) -> list[str]:
    """Return each module on a path, outermost first: ``blocks``, ``blocks.0``, ``blocks.0.mlp``."""
    if path is None:
        return []
    parts = path.split(".") if path else []
    return [THE_MODEL, *(".".join(parts[: end + 1]) for end in range(len(parts)))]
