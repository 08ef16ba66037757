"""What torch keeps of compiled autograd: the backward graphs that it copies, node by node.

Source: ``torch/_dynamo/compiled_autograd.py``, ``torch/_dynamo/utils.py`` (``GmWrapper``) and
``torch/_functorch/_aot_autograd/runtime_wrappers.py`` (``AOTDispatchAutograd``).
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any, NamedTuple

import torch
import torch.fx

from profiler_ext.torch_compat import autograd, behaviour, calling
from profiler_ext.torch_compat.names import fx_names, running_names

COPIED_FROM = "profiler_ext_copied_from"
"""Key in ``node.meta``: the node of compiled autograd's graph that a node was traced from."""

_COPY = re.compile(r"(?P<call>aot(?P<aot_id>\d+)(?:_\d+)?)_(?P<name>\D.*)")
_MACHINERY = (calling.COMPILER, "/torch/_dynamo/external_utils.py")


class CopiedNode(NamedTuple):
    """What a node of compiled autograd's graph was copied from."""

    aot_id: int  # number of the compile in AOTAutograd
    name: str  # in the backward graph of that compile
    call: str  # of that backward graph: ``aot0`` or ``aot0_1``


def copied_node(name: str) -> CopiedNode | None:
    """Parse a name such as ``aot0_mul``, or ``aot0_1_mul`` for a graph that is used twice.

    Source: ``AutogradCompilerInstance.proxy_call_aot_backward``, ``make_unique``; since
    https://github.com/pytorch/pytorch/pull/133148.
    """
    match = _COPY.fullmatch(name)
    return None if match is None else CopiedNode(int(match["aot_id"]), match["name"], match["call"])


def copied_calls(frame: FrameType) -> tuple[tuple[str, int], ...]:
    """Return the calls that the running graph copies, each with autograd's number of its forward.

    Autograd passes each run the nodes that it stands for, in the order in which they were copied;
    the order is part of the graph's key.

    Source: ``ordered_calls`` in ``torch/csrc/dynamo/python_compiled_autograd.cpp``.
    """
    uses: Counter[int] = Counter()
    calls = []
    for aot_id, number in _compiled_nodes(running_names.RUNTIME_WRAPPER.given(frame)):
        calls.append((f"aot{aot_id}_{uses[aot_id]}" if uses[aot_id] else f"aot{aot_id}", number))
        uses[aot_id] += 1
    return tuple(calls)


def _compiled_nodes(hooks: Any) -> Iterator[tuple[int, int]]:
    """Yield the compile and the number of each autograd node of a compiled forward."""
    for each in hooks:
        if issubclass(type(each), running_names.COMPILED_BACKWARD.get()):
            aot_id = running_names.AOT_ID.of(running_names.FORWARD_CLASS.of(type(each)))
            if aot_id is not None:
                yield aot_id, running_names.NODE_SEQUENCE_NR.of(each)()


def summed_gradients(node: torch.fx.Node) -> tuple[torch.fx.Node, ...]:
    """Return the gradients that an op of autograd sums; empty for any other node.

    ``AccumulateGrad`` adds one to a parameter's, ``torch.add`` sums those of a value with several
    uses.
    """
    if node.target is torch.add:
        return tuple(node.all_input_nodes)
    if getattr(node.target, "__name__", "") != "AccumulateGrad":
        return ()
    given: Any = node.args[0]
    return tuple(each for each in given if isinstance(each, torch.fx.Node))


def is_torch_internal(file: str) -> bool:
    """Tell whether a frame belongs to compiled autograd's own graph or to what runs it."""
    return file.startswith("<eval_with_key>") or file.endswith(_MACHINERY)


class Backward(NamedTuple):
    """The backward half of what AOTAutograd compiled."""

    aot_id: int
    info: Any  # kept by torch to compile it later, or to copy it


def backward_of(given: Mapping[str, Any]) -> Backward:
    """Return the backward half, from the arguments of ``AOTDispatchAutograd.post_compile``."""
    if behaviour.HANDS_BACKWARD_AS_SPEC:
        spec = next(value for value in given.values() if running_names.SPEC.is_type_of(value))
        config, info = running_names.SPEC_CONFIG.of(spec), running_names.SPEC_BACKWARD.of(spec)
    else:
        config, info = given["aot_config"], given["lazy_backward_info"]
    return Backward(running_names.CONFIG_AOT_ID.of(config), info)


def traced_graph(info: Any) -> torch.fx.GraphModule | None:
    """Return the backward graph that this process traced; torch may have wiped its metadata."""
    gm = running_names.TRACED_BACKWARD.maybe(info)
    return gm if isinstance(gm, torch.fx.GraphModule) else None


def cached_graph(info: Any) -> torch.fx.GraphModule | None:
    """Return the backward graph from AOTAutograd's cache: nodes in their order, renamed."""
    make = running_names.CACHED_BACKWARD.maybe(info)
    if make is None:
        return None
    with running_names.UNSET_FAKE.get()():
        gm = make()
    return gm if isinstance(gm, torch.fx.GraphModule) else None


def name_copy_sources(gm: torch.fx.GraphModule) -> None:
    """Note on each node what it was traced from, if torch kept that."""
    # After a graph break in a hook the rest has flat inputs, and AOTAutograd interprets it:
    # ``from_node`` has Dynamo's node.
    for node in gm.graph.nodes:
        sources = fx_names.FROM_NODE.of(node.meta)
        if COPIED_FROM not in node.meta and sources:
            node.meta[COPIED_FROM] = fx_names.FROM_NAME.of(sources[0])


class Naming:
    """Notes on nodes traced from a running graph of compiled autograd what they are copied from."""

    def __init__(self, wrapper: Any) -> None:
        gm: torch.fx.GraphModule = running_names.WRAPPED_GRAPH.of(wrapper)
        self._graph = _traced_graph()
        self._names = autograd.names_of_lines(gm)  # first: the code may be made lazily
        self._code = type(gm).forward.__code__

    def name(self, node: torch.fx.Node) -> None:
        """Note on a node that was just traced what it is copied from."""
        if node.graph is self._graph and (source := self._current_node()) is not None:
            node.meta.setdefault(COPIED_FROM, source)

    def _current_node(self) -> str | None:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code is not self._code:
            frame = frame.f_back
        return None if frame is None else self._names.get(frame.f_lineno)


def _traced_graph() -> torch.fx.Graph | None:
    mode = fx_names.GET_PROXY_MODE.get()()
    if mode is None:
        return None
    tracer: torch.fx.Tracer = fx_names.MODE_TRACER.of(mode)
    return tracer.graph
