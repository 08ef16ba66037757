"""The path of a module or parameter as the user sees it, without Dynamo's scope."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.fx

from profiler_ext.records.lineage import ModuleFrame
from profiler_ext.torch_compat import fx, inputs, process
from profiler_ext.torch_compat.fx import user_name, without_prefix
from profiler_ext.torch_compat.names import fx_names, running_names


def held_modules(holder: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the modules that a module holds, without running user code.

    Source: ``torch/nn/modules/module.py``, ``Module.__init__``: ``_modules``, which does not exist
    before it ran, and may be anything in an unusual module.
    """
    for name, module in _entries(holder, "_modules"):
        if process.is_module(module):
            yield name, module


def held_parameters(holder: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the parameters that a module holds itself, without running user code.

    Source: ``torch/nn/modules/module.py``, ``Module.__init__``: ``_parameters``.
    """
    yield from _tensors(holder, "_parameters")


def held_buffers(holder: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the buffers that a module holds itself, without running user code."""
    yield from _tensors(holder, "_buffers")


def _tensors(holder: torch.nn.Module, attribute: str) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in _entries(holder, attribute):
        if issubclass(type(tensor), torch.Tensor):
            yield name, tensor


def _entries(holder: torch.nn.Module, attribute: str) -> Iterator[tuple[str, Any]]:
    held: Any = process.own_attributes(holder).get(attribute)
    if not issubclass(type(held), dict):
        return
    for name, value in list(dict.items(held)):
        if type(name) is str:
            yield name, value


def modules_called(meta: fx.Meta) -> tuple[tuple[int | None, str], ...]:
    """Return ``(id, path)`` from the root inwards; the id of a module that torch only numbers.

    Source: ``torch/_dynamo/variables/nn_module.py``, ``record_nn_module_stack``: the key is the
    module's ``id``, with ``@`` and the number of earlier calls from the second call on.
    """
    stack = fx_names.NN_MODULE_STACK.of(meta) or {}
    return tuple([(_identity(str(key)), str(path)) for key, (path, _) in stack.items()])


def _identity(key: str) -> int | None:
    number = key.partition("@")[0]
    return int(number) if number.isdecimal() else None


_VARIABLE = re.compile(r"^(?P<scope>[LG])\['(?P<name>[^']+)'\]")
_CALLED = re.compile(r"getattr\(([^()]+), '([^']+)'\)")
_HELD = re.compile(r"(?:\.__dict__\['_modules'\]|\._modules)\['([^']+)'\]")
_ITEM = re.compile(r"\[['\"]?([^'\"\]]+)['\"]?\]")

_WRAPPED_UNDER = {
    running_names.CHECKPOINT_WRAPPER.name: running_names.CHECKPOINT_MODULE.name,
    "DataParallel": "module",
    "DistributedDataParallel": "module",
    running_names.FSDP_WRAPPER.name: running_names.FSDP_MODULE.name,
    running_names.OPTIMIZED_MODULE.name: running_names.ORIGINAL_MODULE.name,
}
"""Torch's wrapper modules, each with the attribute that holds the user's module."""


def wrapped_under(class_name: str) -> str | None:
    """Return the attribute under which a wrapper class of torch's holds the user's module.

    Source: ``torch/distributed/fsdp/_fully_shard/_fsdp_init.py``, ``_apply_to_module``: a sharded
    ``OptimizedModule`` is an ``FSDPOptimizedModule``.
    """
    return _WRAPPED_UNDER.get(class_name) or _WRAPPED_UNDER.get(without_prefix(class_name))


def held_under(module: Any) -> str | None:
    """Return the attribute under which a module holds the user's, if it is a wrapper."""
    return wrapped_under(type(module).__name__)


def user_class(module: Any) -> str:
    """Return the user's name for the class of a module, without torch's wrappers."""
    return user_name(type(without_wrappers(module)))


def without_wrappers(module: Any) -> Any:
    """Return a module, or the user's module inside torch's wrappers."""
    while (under := held_under(module)) is not None:
        held = process.own_attributes(module)
        inner = held.get(under, (held.get("_modules") or {}).get(under))
        if not process.is_module(inner):
            break
        module = inner
    return module


def root_modules(
    stacks: set[str], local: Mapping[str, Any], outer: Mapping[str, Any]
) -> dict[str, torch.nn.Module]:
    """Return the variables among ``stacks`` that hold a module, sorted by name."""
    variables = {match[0]: match for path in stacks if (match := _VARIABLE.match(dotted(path)))}
    scopes = {"L": local, "G": outer}
    held = {each: scopes[m["scope"]].get(m["name"]) for each, m in sorted(variables.items())}
    return {each: module for each, module in held.items() if process.is_module(module)}


def module_frames(
    stack: tuple[tuple[str, str], ...],
    roots: tuple[str, ...],
    own: ModuleFrame | None = None,
    held: Mapping[str, str | None] | None = None,
) -> tuple[ModuleFrame, ...]:
    """Return a node's modules by their path from the user's model, without torch's wrappers.

    Dynamo names a module by how the program reached it: a closure (``mlpf.__closure__``), a bound
    method, a global. A module that a model holds gets its path of ``named_modules()``; the work of
    any other belongs to its caller. With several models, all but the one whose method was compiled
    (``own``, the first of ``roots``, in no stack of Dynamo's) begin at their variable:
    ``G['critic'].up``.
    """
    where = ((path if held is None else held.get(path, path), name) for path, name in stack)
    stack = tuple((path, name) for path, name in where if path is not None)
    if not stack:
        return () if own is None or wrapped_under(own.class_name) else (own,)
    stack = tuple((dotted(path), name) for path, name in stack)
    root = next((r for r in roots if is_within(stack[0][0], r)), stack[0][0])
    outer = () if own is None else ((root, own.class_name),)
    model = name_of_root(root, roots, own)
    return tuple(
        ModuleFrame(join_path(model, relative(path, root)), name)
        for path, name in _unwrapped(stack, outer)
    )


def name_of_root(root: str, roots: tuple[str, ...], own: ModuleFrame | None) -> str:
    """Return the prefix of a model's paths in the record of a graph."""
    is_own = own is not None and root == roots[0]
    return "" if is_own or len(roots) < 2 else root


def variable(root: str) -> tuple[str, str]:
    """Return the scope and the name of a variable: ``L`` and ``net`` of ``L['net']``."""
    match = _VARIABLE.match(root)
    return ("", "") if match is None else (match["scope"], match["name"])


def join_path(model: str, path: str) -> str:
    """Join a model's name and a path in it."""
    return f"{model}.{path}".strip(".")


def dotted(path: str) -> str:
    """Return a path with dots: Dynamo may write ``getattr(L['m'], '0')``, or an item."""
    path = _HELD.sub(r".\1", path)
    while (shorter := _CALLED.sub(r"\1.\2", path)) != path:
        path = shorter
    return path


def _unwrapped(
    stack: tuple[tuple[str, str], ...], outer: tuple[tuple[str, str], ...]
) -> list[tuple[str, str]]:
    """Leave out torch's wrapper modules, and their names in the paths."""
    wrappers = [(path, under) for path, n in (*outer, *stack) if (under := wrapped_under(n))]
    shown = []
    for path, name in stack:
        for wrapper, attribute in reversed(wrappers):
            if is_within(path, f"{wrapper}.{attribute}"):
                path = wrapper + path[len(f"{wrapper}.{attribute}") :]
        if wrapped_under(name) is None:
            shown.append((path, name))
    return shown


def is_within(path: str, root: str) -> bool:
    """Tell whether a path is a root, or below it."""
    return path == root or path.startswith((root + ".", root + "["))


def relative(path: str, root: str) -> str:
    """Return a path from a root, or from its variable if it is elsewhere."""
    rest = path[len(root) :] if is_within(path, root) else _VARIABLE.sub("", path)
    return _ITEM.sub(r".\1", rest).strip(".")


HeldPaths = Mapping[str, str | None]
"""Dynamo's paths, each with the path under which a root holds the module, if it does."""

Named = tuple[tuple[int | None, str], ...]
"""The modules of a node from the root inwards: id and Dynamo's path."""

_HIDDEN = re.compile(r"(^|\.)__\w+__(\.|$)")


def held_paths(
    stacks: Iterable[Named], roots: Mapping[str, torch.nn.Module], own_path: str | None = None
) -> HeldPaths:
    """Return the modules that a root holds elsewhere than where Dynamo reached them, or nowhere."""
    trees = {root: _Tree(root, module) for root, module in roots.items()}
    held: dict[str, str | None] = {}
    for stack in filter(None, set(stacks)):
        outermost = dotted(stack[0][1])
        root = own_path or next((root for root in trees if is_within(outermost, root)), "")
        tree = trees.get(root)
        known = {path: tree.path(identity, path) for identity, path in stack if tree is not None}
        held |= {path: where for path, where in known.items() if where != path}
    return held


class _Tree:
    """The modules under a variable's module."""

    def __init__(self, root: str, module: torch.nn.Module) -> None:
        self._root, self._module = root, module
        self._paths: dict[int, str] = {}
        todo = [(root, module)]
        while todo:
            path, holder = todo.pop()
            if id(holder) not in self._paths:
                self._paths[id(holder)] = path
                held = reversed([*held_modules(holder)])
                todo += [(f"{path}.{name}", child) for name, child in held]

    def path(self, identity: int | None, path: str) -> str | None:
        """Return the path at which a module is held that Dynamo reached by a path."""
        reached = dotted(path)
        own = relative(reached, self._root) if is_within(reached, self._root) else None
        if identity is None or (own is not None and self._is_at(own, identity)):
            return path
        if identity in self._paths:
            return self._paths[identity]
        # A module in a plain list or object of the model has a name only there.
        return None if own is None or _HIDDEN.search(own) else path

    def _is_at(self, path: str, identity: int) -> bool:
        module: torch.nn.Module | None = self._module
        for name in filter(None, path.split(".")):
            module = dict(held_modules(module)).get(name) if module is not None else None
        return id(module) == identity


_TENSOR = re.compile(r"(?P<holder>.+)\._(?:parameters|buffers)\['(?P<name>[^']+)'\]")


def held_tensors(
    gm: torch.fx.GraphModule, roots: Mapping[str, torch.nn.Module], own: ModuleFrame | None
) -> dict[str, str]:
    """Return the path of each tensor that the user's modules hold, by its source and its input.

    ``L['self']._modules['a']._parameters['b']`` has the path ``a.b``. What is compiled ahead of
    time loses its sources before the backend has it, but not the names of its inputs.
    """
    named = [(node.name, inputs.source_name(node)) for node in inputs.all_inputs(gm)]
    held = {name: _path(source, roots, own) for name, source in named if source is not None}
    by_source = ((source, held[name]) for name, source in named if source is not None)
    return {name: path for name, path in (*by_source, *held.items()) if path is not None}


def _path(source: str, roots: Mapping[str, torch.nn.Module], own: ModuleFrame | None) -> str | None:
    if (match := _TENSOR.fullmatch(source)) is None:
        return None
    holder = dotted(match["holder"])
    root = next((root for root in roots if is_within(holder, root)), None)
    if root is None:
        return None
    names = _names(relative(holder, root), roots[root])
    model = name_of_root(root, tuple(roots), own)
    return None if names is None else join_path(model, ".".join((*names, match["name"])))


def _names(path: str, module: torch.nn.Module) -> list[str] | None:
    """Return the names on a path without those of wrappers; ``None`` if it does not exist."""
    names = []
    for name in filter(None, path.split(".")):
        held = dict(held_modules(module)).get(name)
        if held is None:
            return None
        if name != held_under(module):
            names.append(name)
        module = held
    return names
