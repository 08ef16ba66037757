"""Owns what torch tells of compiled autograd: whose backward graphs it copies, and node by node.

Source: ``torch/_dynamo/compiled_autograd.py``, ``torch/_dynamo/utils.py`` (``GmWrapper``) and
``torch/_functorch/_aot_autograd/runtime_wrappers.py`` (``AOTDispatchAutograd``).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.fx

COPIED_FROM = "profiler_ext_copied_from"
"""Key in ``node.meta``: the node of compiled autograd's graph that a traced node stems from."""

_COPY = re.compile(r"aot(?P<aot_id>\d+)(?:_(?P<use>\d+))?_(?P<name>\D.*)")
_MACHINERY = ("/torch/_dynamo/compiled_autograd.py", "/torch/_dynamo/external_utils.py")


class Copy(NamedTuple):
    """What a node of compiled autograd's graph was copied from.

    Attributes:
        aot_id: number of the compile in AOTAutograd.
        name: the node's name in the backward graph of that compile.
    """

    aot_id: int
    name: str


def copy_of(name: str) -> Copy | None:
    """Read a name such as ``aot0_mul``, or ``aot0_1_mul`` for a graph that is used twice.

    Source: ``AutogradCompilerInstance.proxy_call_aot_backward``, ``make_unique``.
    """
    found = _COPY.fullmatch(name)
    return None if found is None else Copy(int(found["aot_id"]), found["name"])


def summed_gradients(node: torch.fx.Node) -> tuple[torch.fx.Node, ...]:
    """Return the gradients that a node of autograd's own sums; empty for any other node.

    ``AccumulateGrad`` adds one to a parameter's, and autograd inserts a ``torch.add`` for a
    value with several uses.
    """
    if node.target is torch.add:
        return tuple(node.all_input_nodes)
    if getattr(node.target, "__name__", "") != "AccumulateGrad":
        return ()
    given: Any = node.args[0]
    return tuple(each for each in given if isinstance(each, torch.fx.Node))


def is_machinery(file: str) -> bool:
    """Tell whether a frame belongs to compiled autograd's own graph or to what runs it."""
    return file.startswith("<eval_with_key>") or file.endswith(_MACHINERY)


class Backward(NamedTuple):
    """The backward half of what AOTAutograd compiled.

    Attributes:
        aot_id: number of the compile in AOTAutograd.
        info: what torch keeps to compile it later, or to copy it.
    """

    aot_id: int
    info: Any


def backward_of(
    original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Backward:
    """Return the backward half, from the arguments of ``AOTDispatchAutograd.post_compile``.

    Until torch 2.12 they are its parts one by one, later a ``spec`` that holds them.
    """
    given = inspect.signature(original).bind(*args, **kwargs).arguments
    spec = given.get("spec")
    if spec is None:
        return Backward(given["aot_config"].aot_id, given["lazy_backward_info"])
    return Backward(spec.aot_config.aot_id, spec.lazy_backward_info)


def traced_graph(info: Any) -> torch.fx.GraphModule | None:
    """Return the backward graph that this process traced; torch may have wiped its metadata."""
    gm = getattr(info, "bw_module", None)
    return gm if isinstance(gm, torch.fx.GraphModule) else None


def cached_graph(info: Any) -> torch.fx.GraphModule | None:
    """Return the backward graph from AOTAutograd's cache, as compiled autograd gets it.

    It is traced from its own code: the nodes come in their old order, under new names.
    """
    make = getattr(info, "bw_module_fn", None)
    if make is None:
        return None
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with unset_fake_temporarily():
        gm = make()
    return gm if isinstance(gm, torch.fx.GraphModule) else None


def run_naming(wrapper: Any, args: tuple[Any, ...]) -> Any:
    """Do what ``GmWrapper.forward`` does, and name on each traced node what it stems from.

    Torch runs the graph as plain code, and nothing tells which line makes which node. An
    interpreter runs the same calls in the same order; only a key of our own is added.
    """
    return _Naming(wrapper.gm).run(*wrapper.unflatten_fn(list(args)))


def name_origins(gm: torch.fx.GraphModule) -> None:
    """Name on each node what it stems from, where torch itself kept that.

    After a graph break in a hook the rest has flat inputs, and AOTAutograd runs it with an
    interpreter of its own: ``from_node`` leads to Dynamo's node.
    """
    for node in gm.graph.nodes:
        if COPIED_FROM not in node.meta and node.meta.get("from_node"):
            node.meta[COPIED_FROM] = node.meta["from_node"][0].name


class _Naming(torch.fx.Interpreter):
    def __init__(self, gm: torch.fx.GraphModule) -> None:
        super().__init__(gm)
        self.extra_traceback = False  # an error reads as it does without us

    def run_node(self, n: torch.fx.Node) -> Any:
        graph = _traced_graph()
        if graph is None:
            return super().run_node(n)
        last = next(iter(reversed(graph.nodes)), None)
        result = super().run_node(n)
        for node in reversed(graph.nodes):
            if node is last:
                break
            node.meta.setdefault(COPIED_FROM, n.name)
        return result


def _traced_graph() -> torch.fx.Graph | None:
    from torch.fx.experimental.proxy_tensor import get_proxy_mode

    mode = get_proxy_mode()
    graph = None if mode is None else getattr(mode.tracer, "graph", None)
    return graph if isinstance(graph, torch.fx.Graph) else None
