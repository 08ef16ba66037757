"""Typed access to the inputs of graphs, and which of them a CUDA graph copies.

Source: ``torch/_functorch/_aot_autograd/descriptors.py`` for what the inputs and outputs of
AOTAutograd's graphs stand for; ``torch/_inductor/cudagraph_trees.py`` for the copies.
"""

from __future__ import annotations

import linecache
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType
from typing import Any, NamedTuple

import torch.fx

from profiler_ext.isolation.hook_protocols import identity
from profiler_ext.torch_compat import process
from profiler_ext.torch_compat.names import artifact_names, fx_names, running_names

_RESUMED = "torch_dynamo_resume_in_"


def non_static_inputs(artifact: Any, gm: torch.fx.GraphModule) -> tuple[torch.fx.Node, ...]:
    """Return the inputs that change with each call of a graph compiled for CUDA graphs.

    Parameters, buffers, and what the forward saved keep their address.
    """
    if not wants_cuda_graphs(artifact):
        return ()
    fixed = frozenset(artifact_names.STATIC_INPUTS.of(artifact_names.FX_KWARGS.of(artifact)) or ())
    return tuple(node for at, node in enumerate(all_inputs(gm)) if at not in fixed)


def wants_cuda_graphs(artifact: Any) -> bool:
    """Tell whether a graph was compiled to be replayed."""
    return bool(artifact_names.CUDA_GRAPHS.of(artifact_names.FX_KWARGS.of(artifact)))


def all_inputs(gm: torch.fx.GraphModule) -> tuple[torch.fx.Node, ...]:
    """Return the inputs of a graph in order."""
    return tuple(node for node in gm.graph.nodes if node.op == "placeholder")


def argument_of(node: torch.fx.Node) -> int | None:
    """Return the index of an input among those of Dynamo's graph, if it is one."""
    index: int | None = fx_names.INPUT_INDEX.maybe(fx_names.DESC.of(node.meta))
    return index


def output_of_gradient(node: torch.fx.Node) -> int | None:
    """Return the index of the output of Dynamo's graph that an input is the gradient of."""
    return _output(fx_names.TANGENT_OUTPUT.maybe(fx_names.DESC.of(node.meta)))


def outputs(graph: torch.fx.Graph) -> dict[int, torch.fx.Node]:
    """Return the nodes of the outputs of Dynamo's graph, in AOTAutograd's graph."""
    output = next(node for node in reversed(graph.nodes) if node.op == "output")
    values, described = output.args[0], fx_names.DESC.of(output.meta) or ()
    if not isinstance(values, list | tuple) or len(values) != len(described):
        return {}
    pairs = zip(map(_output, described), values, strict=True)
    return {at: v for at, v in pairs if at is not None and isinstance(v, torch.fx.Node)}


def _output(described: Any) -> int | None:
    index: int | None = fx_names.OUTPUT_INDEX.maybe(described)
    return index


def is_function_argument(node: torch.fx.Node) -> bool:
    """Tell whether an input is, or is read from, an argument of the compiled function.

    Not a global, nor an attribute of a module.
    """
    source = running_names.GRAPHARG_SOURCE.maybe(fx_names.GRAPHARG.of(node.meta))
    while source is not None and not running_names.LOCAL_SOURCE.is_type_of(source):
        if running_names.MODULE_SOURCE.is_type_of(source):
            return False
        source = running_names.SOURCE_BASE.maybe(source)
    return source is not None and bool(running_names.IS_INPUT.of(source))


def source_name(node: torch.fx.Node) -> str | None:
    """Return Dynamo's source of an input, ``L['self']._modules['a']._parameters['b']``.

    A part that a backend cuts out keeps it.
    """
    source = running_names.GRAPHARG_SOURCE.maybe(fx_names.GRAPHARG.of(node.meta))
    name = running_names.SOURCE_NAME.maybe(source)
    return name if isinstance(name, str) else None


def definition(output_graph: Any) -> str:
    """Return the line with the compiled function's arguments, as a frame's text.

    For a resume function, the line at which it goes on.
    """
    code = process.dynamo_code(output_graph)
    line = _definition_line(code)
    text = linecache.getline(code.co_filename, line).strip()
    return f'  File "{code.co_filename}", line {line}, in {code.co_name}\n    {text}\n'


def _definition_line(code: CodeType) -> int:
    """Return the line of ``def``, which decorators may precede."""
    first = code.co_firstlineno
    if code.co_name == "<lambda>" or code.co_name.startswith(_RESUMED):
        return first
    lines = linecache.getlines(code.co_filename)[first - 1 :]
    starts = (at for at, text in enumerate(lines) if text.lstrip().startswith(("def ", "async ")))
    return first + next(starts, 0)


def copied_inputs(cuda_graph: Any) -> tuple[str, ...]:
    """Return the names of the inputs that a recorded CUDA graph copies before each replay."""
    given = artifact_names.PLACEHOLDERS.of(artifact_names.WRAPPED_FUNCTION.of(cuda_graph))
    own = artifact_names.RECONSTRUCTED.of(cuda_graph)
    changing = artifact_names.NON_STATIC.of(cuda_graph)
    # Torch does not copy sizes: there is a CUDA graph for each.
    copied = (given[at] for at in changing if isinstance(own[at], torch.Tensor))
    return tuple(str(artifact_names.PLACEHOLDER_NAME.of(each)) for each in copied)


_MAX_CALLS = 32
_MAX_KEPT = 512


class Passing(NamedTuple):
    """An input of a graph that is an output of one, by their positions."""

    position: int
    graph: int
    output: int
    bytes: int


class PassedTensors:
    """Which outputs of graphs the tensors are that graphs get, in the first calls of each.

    A tensor is known by its storage, which torch gives one object as long as it lives.
    """

    def __init__(self) -> None:
        self._calls: Counter[int] = Counter()
        self._origins: dict[int, tuple[weakref.ref[Any], int, int]] = {}

    def is_wanted(self, graph: int) -> bool:
        """Count a call of a graph; tell whether to look at it."""
        self._calls[graph] += 1
        return self._calls[graph] <= _MAX_CALLS

    def taken(self, given: Sequence[Any]) -> tuple[Passing, ...]:
        """Return which inputs of a call are outputs of calls before."""
        return tuple(self._taken(given)) if self._origins else ()

    def _taken(self, given: Sequence[Any]) -> Iterator[Passing]:
        for position, tensor in enumerate(given):
            if type(tensor) is torch.Tensor:
                storage = tensor.untyped_storage()
                origin = self._origins.get(identity(storage))
                if origin is not None and origin[0]() is storage:
                    yield Passing(position, origin[1], origin[2], tensor.nbytes)

    def keep(self, graph: int, outputs: Iterable[Any]) -> None:
        """Keep what a call of a graph returned; what is known already it only passes on."""
        if len(self._origins) > _MAX_KEPT:
            alive = ((at, kept) for at, kept in self._origins.items() if kept[0]() is not None)
            self._origins = dict(alive)
        for position, tensor in enumerate(outputs):
            if type(tensor) is torch.Tensor:
                storage = tensor.untyped_storage()
                known = self._origins.get(identity(storage))
                if known is None or known[0]() is not storage:
                    self._origins[identity(storage)] = (weakref.ref(storage), graph, position)
