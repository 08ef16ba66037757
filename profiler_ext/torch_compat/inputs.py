"""Owns typed access to what the inputs of graphs are, and which of them a CUDA graph copies.

Source: ``torch/_functorch/_aot_autograd/descriptors.py`` for what the inputs and outputs of
AOTAutograd's graphs stand for; ``torch/_inductor/cudagraph_trees.py`` for the copies.
"""

from __future__ import annotations

import linecache
from types import CodeType
from typing import Any

import torch.fx

_RESUMED = "torch_dynamo_resume_in_"


def changing_inputs(artifact: Any, gm: torch.fx.GraphModule) -> tuple[torch.fx.Node, ...]:
    """Return the inputs that are passed anew at each call of a graph that wants CUDA graphs.

    Parameters, buffers, and what the forward saved stand at one address.
    """
    if not wants_cuda_graphs(artifact):
        return ()
    fixed = frozenset(artifact.fx_kwargs.get("static_input_idxs") or ())
    return tuple(node for at, node in enumerate(all_inputs(gm)) if at not in fixed)


def wants_cuda_graphs(artifact: Any) -> bool:
    """Tell whether a graph was compiled to be replayed."""
    return bool(artifact.fx_kwargs.get("cudagraphs"))


def all_inputs(gm: torch.fx.GraphModule) -> tuple[torch.fx.Node, ...]:
    """Return the inputs of a graph in order."""
    return tuple(node for node in gm.graph.nodes if node.op == "placeholder")


def argument_of(node: torch.fx.Node) -> int | None:
    """Return which input of Dynamo's graph an input is, ``None`` where it is none of them."""
    described: Any = node.meta.get("desc")
    return described.idx if type(described).__name__ == "PlainAOTInput" else None


def output_of_gradient(node: torch.fx.Node) -> int | None:
    """Return of which output of Dynamo's graph an input is the gradient, if it is one."""
    described: Any = node.meta.get("desc")
    is_gradient = type(described).__name__ == "TangentAOTInput"
    return _output(described.output) if is_gradient else None


def outputs(graph: torch.fx.Graph) -> dict[int, torch.fx.Node]:
    """Return the nodes that yield the outputs of Dynamo's graph, in AOTAutograd's graph."""
    output = next(node for node in reversed(graph.nodes) if node.op == "output")
    values, described = output.args[0], output.meta.get("desc") or ()
    if not isinstance(values, list | tuple) or len(values) != len(described):
        return {}
    pairs = zip(map(_output, described), values, strict=True)
    return {at: v for at, v in pairs if at is not None and isinstance(v, torch.fx.Node)}


def _output(described: Any) -> int | None:
    return described.idx if type(described).__name__ == "PlainAOTOutput" else None


def is_passed_in(node: torch.fx.Node) -> bool:
    """Tell whether an input of Dynamo's graph is an argument of the compiled function.

    What it reads from an argument counts; a global, or an attribute of a module, does not.
    """
    given = node.meta.get("grapharg")
    source = getattr(given, "source", None)
    while source is not None and type(source).__name__ != "LocalSource":
        if "NNModule" in type(source).__name__:
            return False
        source = getattr(source, "base", None)
    return bool(getattr(source, "is_input", False))


def definition(output_graph: Any) -> str | None:
    """Return the line that names the compiled function's arguments, as a frame's text.

    A function that Dynamo resumes after a graph break takes its values where it goes on.
    """
    code = getattr(getattr(output_graph, "root_tx", None), "f_code", None)
    if not isinstance(code, CodeType):
        return None
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
    """Return the names of the inputs that a recorded CUDA graph copies before each replay.

    A size is an input too, which torch does not copy: there is a CUDA graph for each.
    """
    given, own = cuda_graph.wrapped_function.placeholders, cuda_graph.reconstructed_inputs
    changing = (at for at in cuda_graph.non_static_input_idx if isinstance(own[at], torch.Tensor))
    return tuple(str(given[at].name) for at in changing)
