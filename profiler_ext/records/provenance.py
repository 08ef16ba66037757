"""The records of a compiled graph: FX nodes, call sites, provenance, graph instances.

Records are frozen and hold builtins only, so that they serialise as they are
(:mod:`profiler_ext.store`), compare by value and never keep a torch object alive.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from profiler_ext.records.gaps import GapReason
from profiler_ext.records.lineage import Lineage
from profiler_ext.records.vocabulary import CacheState, ChoiceKind, SiteKind

_VIEWS = frozenset(
    f"aten.{name}"
    for name in (
        "view",
        "_unsafe_view",
        "reshape",
        "permute",
        "t",
        "transpose",
        "expand",
        "squeeze",
        "unsqueeze",
        "slice",
        "select",
        "alias",
        "detach",
        "as_strided",
        "unfold",
        "split",
        "split_with_sizes",
        "diagonal",
    )
)
_NO_LINEAGE = Lineage()
# Pairs of call site and the names of the device events that its library call launches
LibraryKernels = tuple[tuple[int, tuple[str, ...]], ...]


def is_view_op(name: str) -> bool:
    """Tell whether an op is a view, which computes nothing."""
    return ".".join(name.split(".")[:2]) in _VIEWS


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """The tensor of a node; sizes are integers, or expressions where dynamic."""

    dtype: str
    size: tuple[int | str, ...]
    stride: tuple[int | str, ...]
    device: str


@dataclass(frozen=True, slots=True)
class Gap:
    """The named reason why something is not attributed, with details."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class FxNode:
    """A post-grad FX node: what it is in its graph, and where it comes from."""

    name: str  # its name in the post-grad graph, unique there
    target: str  # the ATen op in FX spelling, ``aten.addmm.default``
    lineage: Lineage = _NO_LINEAGE
    inputs: tuple[str, ...] = ()  # names of the nodes it reads
    # Its name in the graph that entered Inductor, ``None`` where a pass made it
    entry_name: str | None = None
    replaced: tuple[str, ...] = ()  # names of the nodes which a pattern replaced by this one
    outputs: tuple[TensorSpec, ...] = ()  # one spec for each tensor
    is_random: bool = False  # it draws from a random number generator


@dataclass(frozen=True, slots=True)
class NestedIn:
    """One nesting level of a call site: which call runs its graph, and as what."""

    call: str  # path of the call
    part: str  # ``condition`` or ``body`` of a loop, ``branch 0`` of a choice, or ``graph``


@dataclass(frozen=True, slots=True)
class CallSite:
    """One place in a graph's generated wrapper which launches a kernel."""

    ordinal: int  # position in program order, from 0; the identity of the site in its graph
    path: str  # the ordinal as text; ``3/1`` is the second site of the graph nested at site 3
    kind: SiteKind
    kernel: str  # Inductor's kernel name, or the extern's (``extern_kernels.mm``)
    op: str | None  # the extern's name as the profiler spells it (``aten::mm``)
    nodes: tuple[str, ...]  # names of the FX nodes that this site computes, in program order
    weights: tuple[int, ...]  # each node's part of the site's cost, as integers
    # Names of the buffers
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    bytes_moved: str | None = None  # estimated bytes as an expression, ``None`` where unknown
    # Estimated floating-point operations as an expression, ``None`` where unknown
    flops: str | None = None
    within: tuple[NestedIn, ...] = ()  # the calls of nested graphs around it, outermost first
    # Of each buffer in ``writes`` the node whose value it holds, empty where torch does not say;
    # nothing where it was not recorded
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Intermediate:
    """A buffer that one kernel of a graph writes and a later one reads, so that it is in memory."""

    buffer: str
    writer: int  # ordinals of the call sites
    reader: int
    read_bytes: int  # what the reader loads of what the writer stores; sizes at their hints
    written_bytes: int  # what the writer stores of it
    is_kept: bool = False  # it outlives the graph, so it is written whatever is fused
    refusal: str | None = None  # torch's last reason why it did not fuse the two, if it gave any


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to compute an op, among those that autotuning timed."""

    name: str  # the library's function, or the template: ``addmm``, ``triton_mm``
    kind: ChoiceKind
    config: str  # of a template, in torch's words: ``BLOCK_M=64, ..., num_warps=4``
    duration_ns: int | None  # as torch measured it alone; ``None`` where it failed


@dataclass(frozen=True, slots=True)
class Autotuned:
    """What autotuning timed for call sites that are alike, and which it chose."""

    sites: tuple[int, ...]  # ordinals of the call sites
    # The fastest first: each library call, the fastest others, and the chosen one
    choices: tuple[Choice, ...]
    chosen: int | None = None  # position of the chosen one; ``None`` where it is not known
    others: int = 0  # slower ones that are not kept
    is_cached: bool = False  # the compile took the times from torch's cache, and measured none


@dataclass(frozen=True, slots=True)
class PassedInput:
    """A tensor that one call of a graph returned and a later call of a graph was given."""

    name: str  # of the input
    graph: int  # the number of the graph that returned it
    output: str  # its buffer there
    bytes: int  # of the tensor


@dataclass(frozen=True, slots=True)
class Provenance:
    """The record of one compiled graph, independent of process and place."""

    digest: str  # SHA of the content; equal bytes have an equal digest
    torch_version: str  # the torch that compiled it
    is_backward: bool  # torch compiled it as a backward graph, or as a region of one
    is_inference: bool  # no gradient was required, so nodes carry no phase tag
    joint: str | None  # id of the joint graph it was cut from; both halves keep it
    dynamo_digest: str | None  # digest of the Dynamo graph's source functions and edges
    # The post-grad nodes, in graph order; with CUDA graphs, then the inputs that change with each
    # call (target ``placeholder``)
    nodes: tuple[FxNode, ...]
    call_sites: tuple[CallSite, ...]  # in program order
    gaps: tuple[Gap, ...] = ()  # what capture could not record
    # For each node of the Dynamo graph the index of a post-grad node with the same stack, if any
    dynamo_stacks: tuple[int | None, ...] = ()
    dynamo_modules: tuple[int | None, ...] = ()  # the same for the modules
    # The user's labels of each node of the Dynamo graph
    dynamo_annotations: tuple[tuple[tuple[str, str], ...], ...] = ()
    # Names and targets of the calls in a backward graph, as it entered Inductor, that depend on an
    # input: compiled autograd copies them from AOTAutograd's cache under other names
    entry_calls: tuple[tuple[str, str], ...] = ()
    is_inferred: bool = False  # inferred from the generated code, as the compile was not observed
    # Of a part of a Dynamo graph that a backend compiled by itself, the inputs that a module holds:
    # position, position among the part's inputs, and path, ``layers.0.up.weight``; else ``None``.
    # Equal parts may share one artifact, so their arguments tell which modules a call is on.
    parameter_inputs: tuple[tuple[int, int, str], ...] | None = None
    intermediates: tuple[Intermediate, ...] = ()  # the buffers between its kernels
    fusion_options: tuple[str, ...] = ()  # the options of Inductor for fusing that were on
    # Of a forward graph the values of the joint graph that the partitioner saves for the backward,
    # each with its reason not to recompute it, empty where it may; ``None`` where not observed
    saved_values: tuple[tuple[str, str], ...] | None = None
    autotuned: tuple[Autotuned, ...] = ()  # what autotuning timed and chose for its call sites

    @property
    def is_part(self) -> bool:
        """Whether it is a part of a Dynamo graph, which may run for any part that is equal."""
        return self.parameter_inputs is not None

    @property
    def calls_libraries(self) -> bool:
        """Whether a call site calls a library, which chooses its own kernels."""
        return any(site.kind is SiteKind.EXTERN for site in self.call_sites)

    @property
    def is_max_autotune(self) -> bool:
        """Whether Inductor chose kernels by measuring them."""
        return any(option.startswith("max_autotune") for option in self.fusion_options)

    def autotuned_at(self, site: CallSite) -> Autotuned | None:
        """Return what autotuning timed for a call site, if it did."""
        return next((each for each in self.autotuned if site.ordinal in each.sites), None)


_NO_RECORD = Provenance("", "", False, False, None, None, (), ())


@dataclass(frozen=True, slots=True)
class GraphInstance:
    """A provenance as it lives in one process."""

    index: int  # its number in this process, in order of registration
    # The FX graph cache key that the trace's marker carries; ``None`` when bypassed
    key: str | None
    compile_id: str | None  # ``0/0``; the forward's id for a backward graph
    is_backward: bool  # whether it runs as a backward graph here
    cache_state: CacheState  # how the artifact came to be
    cache_detail: str | None  # the answers of torch's caches, or where the record came from
    compile_ns: int  # wall time of compiling (or loading) it
    output_module: str | None  # path of Inductor's generated module
    # The record; ``None`` when none was found (then ``gaps`` says why)
    provenance: Provenance | None = None
    # The provenance's nodes with the stacks of *this* process, and the evidence of each
    nodes: tuple[FxNode, ...] = ()
    runs_optimizer: bool = False  # a node's stack passes through ``torch.optim``
    # Pairs of call site and its device events' names in order, for library calls, recorded in the
    # calls that warm up and record a graph for replay
    library_kernels: LibraryKernels = ()
    stored_kernels: LibraryKernels = ()  # the same from an earlier run, where this one has none
    # For each CUDA graph that was recorded of it, in order, the inputs that are copied before a
    # replay, if known
    copied_inputs: tuple[tuple[str, ...], ...] = ()
    # The same for each later call that recorded again with other copies
    other_copied_inputs: tuple[tuple[tuple[str, ...], ...], ...] = ()
    # Its inputs that graphs returned, as seen in the first recorded calls
    passed_inputs: tuple[PassedInput, ...] = ()
    # Torch's reason for bypassing AOTAutograd's cache, if it did
    autograd_bypass: str | None = None
    # Torch's reason for not replaying it by CUDA graphs, where that was asked for
    replay_skipped: str | None = None
    gaps: tuple[Gap, ...] = field(default=())  # what is not known of this instance
    # Of a region compiled by itself, the number of the graph that calls it; such a graph calls its
    # regions in the order of their indices
    parent_graph: int | None = None
    # The number of its Dynamo graph in this process. Two numbers of one compile id mean a reset of
    # Dynamo in between.
    dynamo_number: int | None = None

    @property
    def is_known(self) -> bool:
        """Whether it has a record."""
        return self.provenance is not None

    @property
    def record(self) -> Provenance:
        """Its record; an empty one where it has none."""
        return self.provenance or _NO_RECORD

    @property
    def call_sites(self) -> tuple[CallSite, ...]:
        """The call sites of its record."""
        return self.record.call_sites

    @property
    def joint(self) -> str | None:
        """Id of the joint graph that it was cut from."""
        return self.record.joint

    @property
    def entry_calls(self) -> tuple[tuple[str, str], ...]:
        """The calls of a backward graph as it entered Inductor."""
        return self.record.entry_calls

    @property
    def is_inferred(self) -> bool:
        """Whether it is known by its generated code alone."""
        return self.record.is_inferred

    @property
    def is_inference(self) -> bool:
        """Whether no gradient was required."""
        return self.record.is_inference

    @property
    def gap_reasons(self) -> frozenset[str]:
        """The reasons of what capture could not record of it."""
        return frozenset(gap.reason for gap in self.record.gaps)

    @property
    def is_partly_captured(self) -> bool:
        """Whether a mechanism of capture failed, so that what it alone gives is missing."""
        return any(
            gap.reason == GapReason.PARTLY_CAPTURED for gap in (*self.gaps, *self.record.gaps)
        )

    @property
    def is_failed(self) -> bool:
        """Whether it has no record because a hook failed."""
        failed = any(gap.reason == GapReason.CAPTURE_FAILED for gap in self.gaps)
        return failed and not self.is_known

    @property
    def is_of_compiled_autograd(self) -> bool:
        """Whether compiled autograd made it: its compile ids are like ``!0/1/0``."""
        return (self.compile_id or "").startswith("!")

    @property
    def runs_backward(self) -> bool:
        """Whether its work is a backward pass, compiled as such or by compiled autograd."""
        return self.is_backward or self.is_of_compiled_autograd
