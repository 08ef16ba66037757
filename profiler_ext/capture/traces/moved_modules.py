"""Owns on which modules a call runs a region that was traced on those of another call.

Dynamo traces a repeated region once, on the modules of its first call; another call passes other
parameters in the same places. A parameter's placeholder is named after its source,
``l_self_modules_blocks_modules_3_modules_norm_parameters_weight_``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import takewhile

import torch.fx

from profiler_ext.capture.traces.module_paths import is_within
from profiler_ext.torch_compat import modules, process

_OF_MODULE = re.compile(r"_(?:parameters|buffers)_")
_Pair = tuple[torch.fx.Node, torch.fx.Node]


def moved_modules(traced: torch.fx.Node, call: torch.fx.Node) -> Mapping[str, str]:
    """Lead the modules of one call to those of another; what leads to two is led to none.

    Args:
        traced: the call that the region was traced for.
        call: the other one.

    Returns:
        The paths of modules of the former, each with that of the latter.
    """
    pairs = [*zip(traced.all_input_nodes, call.all_input_nodes, strict=False)]
    targets: dict[str, set[str]] = {}
    for traced_path, call_path in filter(None, map(_modules_of, pairs)):
        targets.setdefault(traced_path, set()).add(call_path)
    moved = {traced_path: call_path.pop() for traced_path, call_path in targets.items() if len(call_path) == 1}
    kept = {path for traced_path, call_path in pairs if traced_path is call_path for path in _prefixes_of(traced_path)}
    return moved | {path: path for path in kept if not any(is_within(path, each) for each in targets)}


def differing_modules(moved: Mapping[str, str], models: Collection[torch.nn.Module]) -> frozenset[str]:
    """Return those modules in whose place another call has one of other code.

    Args:
        moved: the modules of one call, to those of another.
        models: the user's outermost modules.
    """
    return frozenset(traced_path for traced_path, call_path in moved.items() if _differ(traced_path, call_path, models))


def _differ(traced_path: str, call_path: str, models: Collection[torch.nn.Module]) -> bool:
    """Tell whether two modules have other code; where no model holds one of them, they may."""
    codes = [{_code_of(held) for held in _held_at(path, models)} for path in (traced_path, call_path)]
    return len(codes[0]) != 1 or codes[0] != codes[1]


def _held_at(path: str, models: Collection[torch.nn.Module]) -> Iterator[torch.nn.Module]:
    for held in models:
        for name in path.split("."):
            inner = dict(modules.held_modules(held)).get(name)
            if inner is None:
                break
            held = inner
        else:
            yield held


def _code_of(module: torch.nn.Module) -> tuple[object, ...]:
    """Return the name of a module's class, as a parametrized one has its own class, and code."""
    kind = type(module)
    return kind.__module__, kind.__qualname__, *process.methods_of(module, "forward")


def _modules_of(pair: _Pair) -> tuple[str, str] | None:
    """Return the modules that hold two parameters, without the names that both end in."""
    traced_path, call_path = (_module_of(node.name) for node in pair)
    if not traced_path or not call_path or traced_path == call_path:
        return None
    same = sum(1 for _ in takewhile(lambda names: names[0] == names[1], _from_the_end(traced_path, call_path)))
    return ".".join(traced_path[: len(traced_path) - same]), ".".join(call_path[: len(call_path) - same])


def _prefixes_of(parameter: torch.fx.Node) -> list[str]:
    """Return the modules that hold a parameter which both calls are passed."""
    names = _module_of(parameter.name)
    return [".".join(names[:length]) for length in range(1, len(names) + 1)]


def _from_the_end(traced_path: list[str], call_path: list[str]) -> Iterator[tuple[str, str]]:
    """Pair names from the last one on; the first of each is kept, for it names a module."""
    return zip(reversed(traced_path[1:]), reversed(call_path[1:]), strict=False)


def _module_of(placeholder: str) -> list[str]:
    """Return the names on the way to a parameter's module; none where that can be read twice."""
    parts = _OF_MODULE.split(placeholder)
    return parts[0].split("_modules_")[1:] if len(parts) == 2 else []
