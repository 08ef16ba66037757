"""Owns the reading of a node's metadata: what torch says of where it comes from, as a lineage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from profiler_ext.capture.traces.stacks import parse_stack
from profiler_ext.records import Lineage, Mechanism, ModuleFrame, TensorSpec
from profiler_ext.torch_compat import fx
from profiler_ext.torch_compat.compiled_autograd import COPIED_FROM
from profiler_ext.torch_compat.names import fx_names


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """What was said of a node at one time, which outlives the node.

    Attributes:
        name: its name then.
        lineage: where it comes from; modules are spelled as Dynamo does.
        stack_text: its stack as torch wrote it: carets tell the ops of one line apart.
        outputs: the tensors that it yields.
    """

    name: str
    lineage: Lineage
    stack_text: str | None = None
    outputs: tuple[TensorSpec, ...] = ()

    def filled_by(self, replaced: Iterable[NodeSnapshot]) -> NodeSnapshot:
        """Return this, with what a pattern lost taken from the node it mainly replaced."""
        main = main_of(replaced)
        if main is None:
            return self
        lineage = self.lineage.filled_by(main.lineage)
        if lineage is self.lineage:
            return self
        text = self.stack_text or main.stack_text
        return NodeSnapshot(self.name, lineage, text, self.outputs or main.outputs)


Replaced = Mapping[str, tuple[NodeSnapshot, ...]]
"""New nodes, each with what was said of those that it replaced."""


def lineage_of(meta: fx.Meta) -> Lineage:
    """Return what torch says of where a node comes from."""
    copied_from = meta.get(COPIED_FROM)
    return Lineage(
        original_aten=fx.original_aten(meta),
        seq_nr=fx.integer(meta, fx_names.SEQ_NR),
        stack=parse_stack(fx.text(meta, fx_names.STACK_TRACE)),
        modules=tuple(ModuleFrame(path, kind) for path, kind in fx.module_stack(meta)),
        source_fns=fx.source_fns(meta),
        partitioner_tag=fx.text(meta, fx_names.PARTITIONER_TAG),
        autograd_backward=fx.autograd_backward(meta),
        is_gradient_acc=bool(fx_names.IS_GRADIENT_ACC.of(meta)),
        recompute=fx.text(meta, fx_names.RECOMPUTE),
        annotation=fx.annotation(meta),
        copied_from=None if copied_from is None else str(copied_from),
    ).by(Mechanism.OWN)


def snapshot(name: str, meta: fx.Meta) -> NodeSnapshot:
    """Return what metadata says, but for the node's tensors.

    Args:
        name: the node's name.
        meta: its ``meta``.
    """
    return NodeSnapshot(name, lineage_of(meta), fx.text(meta, fx_names.STACK_TRACE))


def snapshot_with_outputs(name: str, meta: fx.Meta) -> NodeSnapshot:
    """Return all that metadata says.

    Args:
        name: the node's name.
        meta: its ``meta``.
    """
    text = fx.text(meta, fx_names.STACK_TRACE)
    return NodeSnapshot(name, lineage_of(meta), text, tensor_specs(meta))


def main_of(replaced: Iterable[NodeSnapshot]) -> NodeSnapshot | None:
    """Return the replaced node that a new node stands for: the last one with a source.

    A product that a pattern merged with a sum of gradients stands for the product, and so does
    an op of a gradient that it merged with what the same graph does with that gradient.
    """
    rows = [row for row in replaced if row.lineage.is_known]
    work = [row for row in rows if not row.lineage.is_gradient_acc]
    gradient = [row for row in work if fx.asks_for_gradient(row.lineage.source_fns)]
    return next(reversed(gradient or work or rows), None)


def tensor_specs(meta: fx.Meta) -> tuple[TensorSpec, ...]:
    """Return what is recorded of the tensors that a node yields."""
    return tuple(_tensor_spec(value) for value in fx.tensors(meta))


def _tensor_spec(value: torch.Tensor) -> TensorSpec:
    return TensorSpec(
        dtype=str(value.dtype).removeprefix("torch."),
        size=tuple(_dimension(size) for size in value.shape),
        stride=_stride(value),
        device=str(value.device),
    )


def _stride(value: torch.Tensor) -> tuple[int | str, ...]:
    if value.layout is not torch.strided:
        return ()
    return tuple(_dimension(stride) for stride in value.stride())


def _dimension(size: object) -> int | str:
    return size if isinstance(size, int) else str(size)
