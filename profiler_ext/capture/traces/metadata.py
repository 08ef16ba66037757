"""The reading of a node's metadata as a lineage."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import FrameType

import torch

from profiler_ext.capture.traces.stack_traces import parse_stack
from profiler_ext.records import evidence, provenance
from profiler_ext.records.lineage import Frame, Lineage, ModuleFrame
from profiler_ext.torch_compat import autograd, fx
from profiler_ext.torch_compat.compiled_autograd import COPIED_FROM
from profiler_ext.torch_compat.names import fx_names


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """The metadata of a node at one time, which outlives the node."""

    name: str
    lineage: Lineage  # modules in Dynamo's spelling
    stack_text: str | None = None  # as torch wrote it: carets tell the ops of one line apart
    outputs: tuple[provenance.TensorSpec, ...] = ()

    def filled_by(self, replaced: Iterable[NodeSnapshot]) -> NodeSnapshot:
        """Return this, with what a pattern lost filled from the node it mainly replaced."""
        main = main_of(replaced)
        if main is None:
            return self
        lineage = self.lineage.filled_by(main.lineage)
        if lineage is self.lineage:
            return self
        text = self.stack_text or main.stack_text
        return NodeSnapshot(self.name, lineage, text, self.outputs or main.outputs)


Replaced = Mapping[str, tuple[NodeSnapshot, ...]]
"""New nodes, each with the snapshots of those that it replaced."""


_LINEAGES: dict[tuple[object, ...], Lineage] = {}
_MAX_LINEAGES = 16384
"""More than the nodes of most graphs; each takes less than 1 kB, until graph and backward are
compiled."""


def lineage_of(meta: fx.Meta) -> Lineage:
    """Return the lineage in a node's metadata."""
    # Passes change metadata in place, so it is read each time; equal metadata share one lineage.
    origin = fx.origin_metadata(meta)
    if origin is None:
        return _read(meta)
    key = (*origin, meta.get(COPIED_FROM))
    try:
        known = _LINEAGES.get(key)
    except TypeError:  # unhashable metadata
        return _read(meta)
    if known is None:
        if len(_LINEAGES) >= _MAX_LINEAGES:
            _LINEAGES.clear()
        known = _LINEAGES[key] = _read(meta)
    return known


def has_same_origin(one: fx.Meta, other: fx.Meta) -> bool:
    """Tell whether two nodes' metadata agree on their origin."""
    same = map(operator.is_, fx_names.ORIGIN.of(one), fx_names.ORIGIN.of(other))
    return all(same) and one.get(COPIED_FROM) == other.get(COPIED_FROM)


def _read(meta: fx.Meta) -> Lineage:
    copied_from = meta.get(COPIED_FROM)
    stack = parse_stack(fx.text(meta, fx_names.STACK_TRACE))
    return Lineage(
        original_aten=fx.original_aten(meta),
        seq_nr=fx.integer(meta, fx_names.SEQ_NR),
        stack=stack,
        modules=_frames(fx.module_stack(meta)),
        source_fns=fx.source_fns(meta),
        partitioner_tag=fx.text(meta, fx_names.PARTITIONER_TAG),
        autograd_backward=fx.autograd_backward(meta),
        is_gradient_acc=bool(fx_names.IS_GRADIENT_ACC.of(meta)),
        recompute=fx.text(meta, fx_names.RECOMPUTE),
        annotation=fx.annotation(meta),
        copied_from=None if copied_from is None else str(copied_from),
        mechanism=evidence.Mechanism.OWN if stack else None,
    )


_GRAPH_CODE = "<eval_with_key>"


def stacks_of_lines(frame: FrameType) -> Mapping[int, tuple[Frame, ...]]:
    """Return the stack that each line of an FX graph's code was traced from; none of other code.

    Such code runs where a backend compiles nothing, and where a program calls what it traced or
    exported.

    Source: ``torch/fx/graph_module.py``, ``_EvalCacheLoader``.
    """
    is_graph = frame.f_code.co_filename.startswith(_GRAPH_CODE)
    graph = autograd.graph_of(frame) if is_graph else None
    if graph is None:
        return {}
    stacks = {node.name: lineage_of(node.meta).stack for node in graph.graph.nodes}
    named = autograd.names_of_lines(graph).items()
    return {line: stack for line, name in named if (stack := stacks[name])}


@functools.lru_cache(maxsize=4096)
def _frames(modules: tuple[tuple[str, str], ...]) -> tuple[ModuleFrame, ...]:
    return tuple(ModuleFrame(path, kind) for path, kind in modules)


def clear_lineage_cache() -> None:
    """Clear the cached lineages once a graph is compiled."""
    _LINEAGES.clear()
    _frames.cache_clear()


def snapshot(name: str, meta: fx.Meta) -> NodeSnapshot:
    """Return a snapshot without the node's tensors."""
    return NodeSnapshot(name, lineage_of(meta), fx.text(meta, fx_names.STACK_TRACE))


def snapshot_with_outputs(name: str, meta: fx.Meta) -> NodeSnapshot:
    """Return a snapshot with the node's tensors."""
    text = fx.text(meta, fx_names.STACK_TRACE)
    return NodeSnapshot(name, lineage_of(meta), text, tensor_specs(meta))


ADD = "aten.add.Tensor"
"""The op of a sum, of gradients too."""
PRODUCTS = frozenset({"aten.mm.default", "aten.bmm.default"})
"""With an addition: ``addmm`` and ``baddbmm``."""


def main_of(replaced: Iterable[NodeSnapshot]) -> NodeSnapshot | None:
    """Return the replaced node that a new node mainly represents: the last one with a source."""
    # A product merged with an addition or a sum of gradients counts as the product, and an op of a
    # gradient merged with what the graph does with that gradient as the former.
    rows = [row for row in replaced if row.lineage.is_known]
    if not rows:
        return None
    products = [row for row in rows if row.lineage.original_aten in PRODUCTS]
    if len(products) == 1 and any(row.lineage.original_aten == ADD for row in rows):
        return products[0]
    work = [row for row in rows if not row.lineage.is_gradient_acc]
    gradient = [row for row in work if fx.calls_autograd_grad(row.lineage.source_fns)]
    return next(reversed(gradient or work or rows), None)


def tensor_specs(meta: fx.Meta) -> tuple[provenance.TensorSpec, ...]:
    """Return the specs of the tensors in a node's value."""
    return tuple([_tensor_spec(value) for value in fx.tensors(meta)])


def _tensor_spec(value: torch.Tensor) -> provenance.TensorSpec:
    size = tuple([_dimension(size) for size in value.shape])
    strides = value.stride() if value.layout is torch.strided else ()
    return _spec(value.dtype, size, tuple([_dimension(each) for each in strides]), value.device)


@functools.lru_cache(maxsize=4096)
def _spec(
    dtype: torch.dtype,
    size: tuple[int | str, ...],
    stride: tuple[int | str, ...],
    device: torch.device,
) -> provenance.TensorSpec:
    return provenance.TensorSpec(str(dtype).removeprefix("torch."), size, stride, str(device))


def _dimension(size: object) -> int | str:
    return size if isinstance(size, int) else str(size)
