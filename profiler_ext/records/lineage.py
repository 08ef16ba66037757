"""Where a node comes from, and how one node takes that from another, field by field."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from profiler_ext.records.evidence import LineEvidence, Mechanism

# What is in the path of each file of ``torch.optim``, wherever torch is installed
OPTIMIZER = "/torch/optim/"


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a Python stack."""

    # Path; in a stored provenance relative to a root token such as ``<site-packages>`` (see
    # :mod:`profiler_ext.source_paths`)
    file: str
    line: int  # 1-based line number
    function: str
    code: str | None = None  # text of the line, stripped; ``None`` where it was not recorded


@dataclass(frozen=True, slots=True)
class ModuleFrame:
    """One ``nn.Module`` on the way from the root to a node: ``layers.7.mlp`` of class ``MLP``."""

    path: str
    class_name: str

    @property
    def is_of_variable(self) -> bool:
        """Whether its path begins at a variable: in the record of a graph that has other models."""
        return self.path.startswith(("L['", "G['"))


@dataclass(frozen=True, slots=True)
class PartModules:
    """The modules of a graph's call, by the paths that its record names."""

    # Each path of the record with the call's module, if known
    modules: tuple[tuple[str, ModuleFrame | None], ...] = ()
    own: ModuleFrame | None = None  # the module whose own method calls, if it is one

    def of(self, recorded: ModuleFrame) -> ModuleFrame | None:
        """Return the module of the call that stands where a recorded one did."""
        return dict(self.modules).get(recorded.path)


def is_of_optimizer(stack: Iterable[Frame]) -> bool:
    """Tell whether a stack passes through ``torch.optim``."""
    return any(OPTIMIZER in frame.file for frame in stack)


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where a node comes from; what is unknown is ``None``, empty or false."""

    original_aten: str | None = None  # the op before decomposition, if torch recorded it
    seq_nr: int | None = None  # torch's trace-time number; never the profiler's sequence number
    stack: tuple[Frame, ...] = ()  # outermost frame first; for a backward node the forward's stack
    # Module path from the root inwards; for a backward node the forward's
    modules: tuple[ModuleFrame, ...] = ()
    # The names in ``source_fn_stack`` (or the forward's), outermost first
    source_fns: tuple[str, ...] = ()
    # ``is_forward``, ``is_backward``, ``must_be_in_*`` or ``None``
    partitioner_tag: str | None = None
    autograd_backward: bool | None = None  # torch's tag; ``None`` where this torch has none
    is_gradient_acc: bool = False  # the node sums gradients of a tensor with several uses
    recompute: str | None = None  # the checkpoint policy's tag, if any
    # The user's own labels (``torch.fx.traceback.annotate``)
    annotation: tuple[tuple[str, str], ...] = ()
    # Its name in the joint graph, ``None`` where a later pass made it
    joint_name: str | None = None
    forward_node: str | None = None  # name in the joint graph of the forward node it differentiates
    forward_evidence: str | None = None  # the rule that found ``forward_node``
    # In a graph of compiled autograd its earlier name, ``aot0_mul``; in a region compiled by
    # itself, the node of the enclosing graph that it was traced from
    copied_from: str | None = None
    # Id of its joint graph, where compiled autograd took it from another graph
    joint: str | None = None
    copied_call: str | None = None  # the call of that graph, ``aot0_1``, in this process
    # The source of its stack; ``None`` without one, or in older records
    mechanism: Mechanism | None = None
    # The source of its stack in one process; ``None`` in a stored record
    evidence: LineEvidence | None = None

    @property
    def is_of_optimizer(self) -> bool:
        """Whether its stack passes through ``torch.optim``."""
        return is_of_optimizer(self.stack)

    @property
    def is_known(self) -> bool:
        """Tell whether the call's origin is known: a stack, or a number."""
        return bool(self.stack) or self.seq_nr is not None

    def by(self, mechanism: Mechanism) -> Lineage:
        """Return the same with a mechanism, if it has a stack."""
        own_mechanism = mechanism if self.stack else None
        return self if self.mechanism is own_mechanism else replace(self, mechanism=own_mechanism)

    def known_by(self, evidence: LineEvidence) -> Lineage:
        """Return the same with the evidence of its stack; ``ABSENT`` if it has none."""
        return replace(self, evidence=evidence if self.stack else LineEvidence.ABSENT)

    def filled_by(self, other: Lineage) -> Lineage:
        """Return this lineage with its unknown fields taken from another's."""
        # With its number and its stack, nothing was lost.
        if self.seq_nr is not None and self.stack:
            return self
        return Lineage(
            original_aten=self.original_aten or other.original_aten,
            seq_nr=other.seq_nr if self.seq_nr is None else self.seq_nr,
            stack=self.stack or other.stack,
            modules=self.modules or other.modules,
            source_fns=self.source_fns or other.source_fns,
            partitioner_tag=self.partitioner_tag or other.partitioner_tag,
            autograd_backward=self.autograd_backward or other.autograd_backward,
            is_gradient_acc=self.is_gradient_acc or other.is_gradient_acc,
            recompute=self.recompute or other.recompute,
            annotation=self.annotation or other.annotation,
            copied_from=self.copied_from or other.copied_from,
            mechanism=self.mechanism,
        )

    def with_place_of(self, other: Lineage) -> Lineage:
        """Return this lineage with another's line, modules, source functions and labels."""
        # Number, tags and op stay its own.
        return replace(
            self,
            stack=other.stack or self.stack,
            modules=other.modules,
            source_fns=other.source_fns,
            annotation=other.annotation or self.annotation,
        )

    def traced_from(self, other: Lineage) -> Lineage:
        """Return the lineage of a node traced from another, with all that its trace lost."""
        # The trace keeps labels and the checkpoint's tag.
        return replace(
            self,
            original_aten=other.original_aten,
            seq_nr=other.seq_nr,
            stack=other.stack,
            modules=other.modules,
            source_fns=other.source_fns,
            partitioner_tag=other.partitioner_tag,
            is_gradient_acc=other.is_gradient_acc,
        )

    def copied(self, original: Lineage) -> Lineage:
        """Return the lineage of a copy in compiled autograd's graph: all is the original's."""
        return replace(
            original,
            original_aten=original.original_aten or self.original_aten,
            copied_from=self.copied_from,
            evidence=self.evidence,
        )

    def refreshed(self, fresh: Lineage, *, is_made: bool) -> Lineage:
        """Return a recorded lineage as this process's equal graph has it."""
        # is_made: a pass made this node: its op and mechanism are its own
        return replace(
            fresh,
            original_aten=self.original_aten if is_made else fresh.original_aten,
            copied_from=fresh.copied_from or self.copied_from,
            mechanism=self.mechanism if is_made else fresh.mechanism,
        )
