"""Owns the lineage of what compiled autograd does not copy: hooks, and autograd's own nodes.

What ran eagerly in the forward has a backward whose line nobody keeps.
Source: ``torch/_dynamo/compiled_autograd.py``, ``AutogradCompilerInstance``.
"""

from __future__ import annotations

from dataclasses import replace

import torch.fx

from profiler_ext.capture.lineage.joint_graph import Lineages
from profiler_ext.capture.lineage.stage import Stage
from profiler_ext.capture.traces.stacks import parse_stack
from profiler_ext.records import Lineage, LineEvidence, Mechanism
from profiler_ext.torch_compat import compiled_autograd, fx
from profiler_ext.torch_compat.names import fx_names


def line_of_hook(stage: Stage) -> Lineages:
    """Say of what is no copy that it stands where Dynamo saw the user's own frames."""
    own = (node for node in stage.nodes if compiled_autograd.copied_node(node.name) is None)
    return {node.name: _seen_by_dynamo(node) for node in own}


def _seen_by_dynamo(node: torch.fx.Node) -> Lineage:
    frames = parse_stack(fx.text(node.meta, fx_names.STACK_TRACE))
    users = tuple(frame for frame in frames if not compiled_autograd.is_torch_internal(frame.file))
    lineage = Lineage(stack=users, source_fns=fx.source_fns(node.meta)).by(Mechanism.OWN)
    return replace(
        lineage, evidence=LineEvidence.COMPILED if users else LineEvidence.EAGER_BACKWARD
    )
