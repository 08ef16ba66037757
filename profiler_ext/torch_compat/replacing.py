"""Owns that FX reports what passes replace in a graph, and how that is kept from failing them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import torch
import torch.fx

from profiler_ext.torch_compat.names import fx_names

Report = Callable[..., None]
_REPORTS: WeakKeyDictionary[torch.fx.GraphModule, Report] = WeakKeyDictionary()


@contextmanager
def watching_replacements(gm: torch.fx.GraphModule, on_replace: Report) -> Iterator[None]:
    """Report each replacement made in a graph.

    Args:
        gm: the graph's module.
        on_replace: takes ``old``, ``new`` and ``user`` by these names, amid torch's passes: it
            must not raise.

    Source: ``torch/fx/graph_module.py``, ``GraphModule._register_replace_node_hook``.
    """
    forget = fx_names.UNREGISTER_REPLACE.of(gm)
    fx_names.REGISTER_REPLACE.of(gm)(on_replace)
    _REPORTS[gm] = on_replace
    try:
        yield
    finally:
        del _REPORTS[gm]
        forget(on_replace)


@contextmanager
def unreported(node: torch.fx.Node) -> Iterator[None]:
    """Report no replacement in the graph of a node.

    What takes a node's place may be a number, as of a Python float that cannot become a tensor;
    torch asks it for its name where anybody is reported to, and fails.

    Args:
        node: what is replaced.

    Source: ``torch/fx/node.py``, ``Node.replace_all_uses_with``.
    """
    gm = node.graph.owning_module
    report = None if gm is None else _REPORTS.get(gm)
    if gm is None or report is None:
        yield
        return
    fx_names.UNREGISTER_REPLACE.of(gm)(report)
    try:
        yield
    finally:
        fx_names.REGISTER_REPLACE.of(gm)(report)
