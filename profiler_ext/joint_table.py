"""Tabulates a model's joint graph: each backward op with the forward op it differentiates."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from profiler_ext.attribution import phases, places
from profiler_ext.errors import UsageError
from profiler_ext.records.lineage import Frame
from profiler_ext.records.provenance import FxNode
from profiler_ext.records.recording import Settings, cell_named
from profiler_ext.source_paths import cell_number, expand, library_roots, user_roots

if TYPE_CHECKING:
    import pandas as pd

    from profiler_ext.exporters.tables import SequenceRow, Table


def seq_table(model: Any, inputs: Any) -> pd.DataFrame:
    """Trace a model's forward and backward; return which forward each backward op belongs to.

    Nothing of the model is run or changed.

    Args:
        model: a module whose forward returns the loss: alone, or as the only scalar output that
            requires a gradient.
        inputs: its arguments: a tuple or list, a mapping of keyword arguments, or one tensor.

    Returns:
        One row for each op of the joint graph, in graph order: ``SeqNr`` (from 0), ``OrigAten``,
            ``SrcFn``, ``phase``, ``module``, ``line``, ``forward_node``, ``node``, ``file``,
            ``autograd_backward``, ``annotation``. The number of a gradient sum means nothing.

    Raises:
        TorchCapabilityError: This torch lacks what tracing needs.
        UsageError: The model does not return one loss, or cannot be traced as one graph.
    """
    return seq_columns(model, inputs).to_pandas()


def seq_columns(model: Any, inputs: Any) -> Table:
    """Return the same as columns."""
    from profiler_ext.exporters.tables import seq_table as table

    positional, named = _arguments(inputs)
    nodes = _joint_nodes(model, positional, named)
    roots = places.SourceRoots(Settings(user_roots=user_roots(), library_roots=library_roots()))
    numbers = (node.lineage.seq_nr for node in nodes)
    base = next((number for number in numbers if number is not None), 0)
    return table([_row(node, base, roots) for node in nodes])


def load_example(target: str) -> tuple[Any, Any]:
    """Call the function that a command line names, for a model and its inputs.

    Raises:
        UsageError: There is no such function, or it does not return a model and its inputs.
    """
    place, _, name = target.rpartition(":")
    function = getattr(_load_module(place), name, None) if place and name else None
    if not callable(function):
        raise UsageError(f"{target} is not a function; name one as FILE.py:FUNCTION")
    example = function()
    if not isinstance(example, tuple) or len(example) != 2:
        raise UsageError(f"{target} returned {type(example).__name__}, expected (model, inputs)")
    return example


def _load_module(place: str) -> ModuleType:
    try:
        if not place.endswith(".py"):
            return importlib.import_module(place)
        spec = importlib.util.spec_from_file_location(Path(place).stem, place)
        assert spec is not None and spec.loader is not None
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except (ImportError, OSError) as error:
        raise UsageError(f"{place} cannot be loaded ({error}); name a file or a module") from error
    return module


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,), {}


def _joint_nodes(
    model: Any, positional: tuple[Any, ...], named: dict[str, Any]
) -> tuple[FxNode, ...]:
    """Return the joint graph's ops, without those that only pick one of an op's results."""
    from profiler_ext.capture.graphs.fx_nodes import describe_nodes
    from profiler_ext.capture.lineage.joint import describe_joint
    from profiler_ext.capture.lineage.stage import Compilation
    from profiler_ext.capture.traces.creations import watched
    from profiler_ext.recall.dynamo_graph import DynamoGraph
    from profiler_ext.torch_compat.joint_trace import MODEL, trace_joint

    with watched() as creations:
        gm = trace_joint(model, positional, named)
    joint = describe_joint(gm, {}, creations=creations.of(gm.graph))
    compilation = Compilation(lambda _: joint, DynamoGraph("", (MODEL,), None, {}))
    nodes = describe_nodes(gm.graph.nodes, compilation)
    return tuple(node for node in nodes if node.target != "getitem")


def _row(node: FxNode, base: int, roots: places.SourceRoots) -> SequenceRow:
    from profiler_ext.exporters.tables import SequenceRow

    lineage = node.lineage
    frame = roots.model_frame(_frames(node))
    module = places.innermost_module(node, None)
    return SequenceRow(
        seq_nr=None if lineage.seq_nr is None else lineage.seq_nr - base,
        original_aten=lineage.original_aten or node.target,
        source_fn=lineage.source_fns[-1] if lineage.source_fns else None,
        phase=phases.joint_phase(node),
        module=module.path if module else None,
        line=frame.line if frame else None,
        forward_node=lineage.forward_node,
        node=node.name,
        file=frame.file if frame else None,
        autograd_backward=lineage.autograd_backward,
        annotation=places.annotation_text(node),
    )


def _frames(node: FxNode) -> tuple[Frame, ...]:
    """Return the stack with full paths, without the call that traced the model."""
    from profiler_ext.torch_compat import joint_trace

    full = (replace(frame, file=_file(frame.file)) for frame in node.lineage.stack)
    return tuple(frame for frame in full if frame.file != joint_trace.__file__)


def _file(kept: str) -> str:
    """Return the path of an existing file; a notebook's cell is named as the notebook names it."""
    path = expand(kept)
    number = cell_number(path)
    return path if number is None else cell_named(number)
