"""One program in this process: compiled, recorded for two steps, and judged."""

from __future__ import annotations

import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import profiler_ext
from profiler_ext.sessions.session import Session

from .engines import ENGINES
from .judging import Launch, Place, Row, is_product, judged, marked_lines
from .toy import __file__ as toy_file

__all__ = ["launches_of", "measure"]

STEPS = 2
_CAPTURED = "own_cuda_graph"


def measure(engine: str, program: str, device: str, folder: Path, name: str) -> Row:
    """Run a program of an engine; return what is so of it, and save its session."""
    started = time.perf_counter()
    profiler_ext.enable(learn=program == "graphs")
    ran = ENGINES[engine](device, folder, program)
    print(f"compiled, and run: {time.perf_counter() - started:.0f} s", flush=True)
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with profiler_ext.profile(activities=activities) as recording:
        for _ in range(STEPS):
            got = ran.step()
            recording.step()
    recording.session.save(folder / name)
    steps = launches_of(recording.session, only_products=program == "eager")
    return {
        "name": name,
        "versions": _versions(engine),
        "stood_in": ran.stood_in,
        "caches": sorted({str(state) for state in recording.session.graphs().cache_state}),
        "is_equal": torch.allclose(got, ran.expected, atol=1e-4),
        **judged(steps),
    }


def launches_of(session: Session, *, only_products: bool = False) -> list[list[Launch]]:
    """The launches of compiled pieces in each step, in order; of eager ones the products alone."""
    launches = session.launches().sort_values("start_ns")
    parts = dict(list(session.attribution().groupby("launch")))
    steps: dict[int, list[Launch]] = {}
    for row in launches[launches.step.notna()].to_dict("records"):
        is_piece = row["scope"] == "compiled" or _text(row["gap"]) == _CAPTURED
        name = _text(row["kernel"]) or row["name"]
        if is_product(name) if only_products else is_piece:
            own = parts[row["launch"]].to_dict("records")
            places = tuple((_place(part), float(part["share"])) for part in own)
            gap = _text(row["gap"]) or "no_source_line"
            found = Launch(name, int(row["duration_ns"]), places, gap)
            steps.setdefault(int(row["step"]), []).append(found)
    return [steps[step] for step in sorted(steps)]


def _place(part: dict[str, Any]) -> Place | None:
    file, module = _text(part["file"]), part["module"]
    if not file:
        return None
    is_toy = Path(file).name == Path(toy_file).name
    mark = marked_lines().get(int(part["line"]), "") if is_toy else ""
    return Place(mark, module if isinstance(module, str) else None)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _versions(engine: str) -> str:
    module = sys.modules.get(f"{engine}.version")
    names = [engine, f"{engine}-cpu"]
    found = getattr(module, "__version__", "") or next(filter(None, map(_version, names)), "?")
    return f"{engine} {found}, torch {torch.__version__}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
