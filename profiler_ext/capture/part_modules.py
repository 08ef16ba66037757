"""Owns which modules a call of a graph is on that is no module's own method.

Equal parts may share one artifact, whose record names the modules of the part that it was compiled
for. A module that holds a parameter which a call is passed stands where the module stood that held
the recorded one; so do the modules around both, and what these hold. What two parameters contradict
each other on, or what is of another class there, is not known.

A function may be called on one model now and on another then: its variables tell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import torch

from profiler_ext.capture.held_modules import HeldModules
from profiler_ext.capture.traces.module_paths import join_path, user_class, without_wrappers
from profiler_ext.records import GraphInstance, ModuleFrame, PartModules
from profiler_ext.torch_compat import modules

_ModulesByPath = dict[str, torch.nn.Module]


def part_modules(
    recorded: Iterable[ModuleFrame], passed: Mapping[str, torch.Tensor], held: HeldModules
) -> PartModules:
    """Return for each module that the record of a part names the one that a call is on.

    Args:
        recorded: the modules that the record names.
        passed: by the recorded path of each input that a module held, what the call is passed.
        held: knows which modules hold which modules and tensors.
    """
    by_path = _modules_by_path(passed, held)
    frames = sorted(set(recorded), key=lambda frame: frame.path)
    of_call = [_module(frame, by_path) for frame in frames]
    named = zip(frames, of_call, held.frames_of(of_call), strict=True)
    return PartModules(
        tuple((f.path, call_frame if _has_class_of(f, module) else None) for f, module, call_frame in named)
    )


def model_modules(
    recorded: Iterable[ModuleFrame],
    models: Mapping[str, ModuleFrame | None],
    own: ModuleFrame | None = None,
) -> PartModules:
    """Return for each module that the record of a function names the one that a call is on.

    Args:
        recorded: the modules that the record names.
        models: the modules that the function's variables hold, by where the record has them.
        own: the module whose own method calls, if it is one.
    """
    frames = sorted(set(recorded), key=lambda frame: frame.path)
    return PartModules(tuple((f.path, _in_model(f, models)) for f in frames), own)


def _in_model(frame: ModuleFrame, models: Mapping[str, ModuleFrame | None]) -> ModuleFrame | None:
    name, _, rest = frame.path.partition(".") if frame.is_of_variable else ("", "", frame.path)
    model = models.get(name)
    return None if model is None else ModuleFrame(join_path(model.path, rest), frame.class_name)


def recorded_modules(graph: GraphInstance, graphs: Iterable[GraphInstance]) -> set[ModuleFrame]:
    """Return the modules that the records of a graph and of its other half name.

    Args:
        graph: the graph.
        graphs: all graphs.
    """
    halves = [g for g in graphs if g is graph or (g.joint == graph.joint is not None)]
    return {frame for half in halves for node in half.nodes for frame in node.lineage.modules}


def _modules_by_path(passed: Mapping[str, torch.Tensor], held: HeldModules) -> _ModulesByPath:
    """Return the modules that are known by what the call is passed, by the recorded paths."""
    candidates: dict[str, list[torch.nn.Module]] = defaultdict(list)
    for path, tensor in passed.items():
        *around, name = path.split(".")
        holders = [module for module, attribute in held.holders_of(tensor) if attribute == name]
        if len(holders) == 1:
            for inner, module in _ancestors(around, holders[0], held):
                if all(module is not other for other in candidates[inner]):
                    candidates[inner].append(module)
    return {path: matches[0] for path, matches in candidates.items() if len(matches) == 1}


def _ancestors(
    names: list[str], module: torch.nn.Module, held: HeldModules
) -> Iterable[tuple[str, torch.nn.Module]]:
    """Yield a module and those around it, each with the recorded path of what it stands for."""
    yield ".".join(names), module
    while names and (holder := held.holder_of(module)) is not None:
        names, module = names[:-1], holder
        yield ".".join(names), module


def _module(frame: ModuleFrame, by_path: _ModulesByPath) -> torch.nn.Module | None:
    """Return what stands for a recorded module: known by itself, or held by what is.

    Of several that one holds, or one of a list, a parameter must tell: an equal part may be on
    another of them.
    """
    if frame.path in by_path:
        return by_path[frame.path]
    around, _, name = frame.path.rpartition(".")
    holder = by_path.get(around) if frame.path else None
    held = [] if holder is None else list(modules.held_modules(without_wrappers(holder)))
    same_class = [(n, module) for n, module in held if user_class(module) == frame.class_name]
    return same_class[0][1] if [n for n, _ in same_class] == [name] else None


def _has_class_of(recorded: ModuleFrame, module: torch.nn.Module | None) -> bool:
    return module is not None and user_class(module) == recorded.class_name
