"""Owns which node of a graph makes what is traced, where torch runs the graph as plain code.

Nothing tells it: but the code has one line for each node, and the line that runs is on the stack.
So torch runs the graph of compiled autograd, and the bodies of hooks on gradients, which Dynamo
keeps as graphs of their own from torch 2.13 on.

Source: ``torch/fx/graph.py``, ``CodeGen._gen_python_code``;
``torch/_higher_order_ops/register_hook.py``, ``RegisterHookOp``.
"""

from __future__ import annotations

import re
import sys
from types import FrameType

import torch.fx

_ASSIGNED = re.compile(r"(?:^|;)\s*(\w+)(?:\s*:[^=;]*)? = ")
_HOOKS = "torch._higher_order_ops.register_hook"
_FILE_OF_HOOKS = "/torch/_higher_order_ops/register_hook.py"


def names_of_lines(gm: torch.fx.GraphModule) -> dict[int, str]:
    """Return the node that each line of a graph's code makes.

    Args:
        gm: the graph; where its code is made lazily, it is made now.
    """
    names, names_by_line = {node.name for node in gm.graph.nodes}, {}
    for number, line in enumerate(gm.code.splitlines(), 1):
        made = next((name for name in _ASSIGNED.findall(line) if name in names), None)
        if made is not None:
            names.remove(made)
            names_by_line[number] = made
    return names_by_line


def node_of_hook() -> torch.fx.Node | None:
    """Return the node of a hook's body that is traced now; ``None`` where no hook on a gradient is.

    Dynamo loads the module of the hooks when a program registers its first one.
    """
    frame = _frame_of_body() if _HOOKS in sys.modules else None
    if frame is None or (body := _graph_of(frame)) is None:
        return None
    name = names_of_lines(body).get(frame.f_lineno)
    return next((node for node in body.graph.nodes if node.name == name), None)


def _frame_of_body() -> FrameType | None:
    """Return the frame that a hook called: of a body's graph, not of one that the body calls."""
    body: FrameType | None = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.endswith(_FILE_OF_HOOKS):
        if frame.f_code.co_name == "forward" and _graph_of(frame) is not None:
            body = frame
        frame = frame.f_back
    return None if frame is None else body


def _graph_of(frame: FrameType) -> torch.fx.GraphModule | None:
    """Return the graph whose method runs in a frame, if it is one's."""
    method_of = frame.f_locals.get("".join(frame.f_code.co_varnames[:1]))
    return method_of if isinstance(method_of, torch.fx.GraphModule) else None
