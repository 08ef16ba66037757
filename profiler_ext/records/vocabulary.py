"""Closed vocabularies: phases, kinds, levels, scopes and idle causes, with meaning and remedy.

The cause of idle time is what ended it: the next launch on the device, and what the thread that
enqueued it did since the idle span began.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self

NOTHING = "nothing needs to be done"
# What a call site launches is a launch of the same kind.
_TRITON = ("triton", "Triton kernel", "is a kernel that Inductor generated")
_TEMPLATE = (
    "triton_template",
    "Triton template",
    "is a kernel that Inductor made of a template: a product, a convolution, FlexAttention",
)
_USERS = ("user_triton", "Triton kernel of the program", "is a kernel that the program wrote")
_CPP = ("cpp", "C++ kernel", "is a kernel that Inductor generated for the CPU")
_EXTERN = ("extern", "library call", "is of a call that a compiled graph makes into a library")


class Term(StrEnum):
    """A word of a closed vocabulary, one row each; it is its own text.

    A vocabulary names its page of the documentation, its title there, and the columns of tables
    that hold its words.
    """

    label: str  # a short label
    meaning: str  # the end of a sentence about what it describes
    remedy: str  # what to do about it
    _page: str
    _title: str
    _columns: tuple[str, ...]

    def __new__(cls, text: str, label: str = "", meaning: str = "", remedy: str = NOTHING) -> Self:
        """Create a row; the signature lets a type checker look a term up by its text alone."""
        if not (text and label and meaning and remedy):
            raise TypeError(f"{cls.__name__} {text!r} needs words, a meaning and a remedy")
        term = str.__new__(cls, text)
        term._value_ = text
        term.label, term.meaning, term.remedy = label, meaning, remedy
        return term

    def __init_subclass__(cls, *, page: str, title: str, columns: tuple[str, ...]) -> None:
        """Set what all words of a vocabulary share."""
        super().__init_subclass__()
        cls._page, cls._title, cls._columns = page, title, columns

    @property
    def heading(self) -> str:
        """Its heading in the documentation."""
        return f"{self._title}: {self.value}"

    @property
    def page(self) -> str:
        """Where the documentation explains it: a file below ``docs``, and the anchor there."""
        return f"{self._page}#{self.heading.replace(':', '').replace(' ', '-')}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that hold it, each after its table: ``launches.gap``."""
        return self._columns


class Phase(
    Term,
    page="words.md",
    title="phase",
    columns=(
        "launches.phase",
        "attribution.phase",
        "graphs.phase",
        "by_phase.phase",
        "by_memory.phase",
    ),
):
    """Which part of a training step did the work."""

    FORWARD = (
        "forward",
        "forward",
        "runs in a module's forward or in a compiled function, or a backward differentiates it",
    )
    BACKWARD = ("backward", "backward", "computes gradients")
    RECOMPUTE = (
        "recompute",
        "recompute",
        "computes a value of the forward again for the backward, as activation checkpointing does",
    )
    GRADIENT_ACCUMULATION = (
        "gradient_accumulation",
        "gradient accumulation",
        "adds up the gradients of a value or parameter that is used several times",
    )
    OPTIMIZER = ("optimizer", "optimizer", "changes the parameters, or works for it")
    OTHER = (
        "other",
        "other",
        "is none of these: data that is loaded, losses that are logged, averages of parameters",
    )


class SiteKind(Term, page="words.md", title="call site", columns=()):
    """What a call site launches."""

    TRITON = _TRITON
    TRITON_TEMPLATE = _TEMPLATE
    USER_TRITON = _USERS
    CPP = _CPP
    EXTERN = _EXTERN


class LaunchKind(Term, page="words.md", title="kind", columns=("launches.kind", "by_kernel.kind")):
    """What a launch is: a call site's kind, or what runs outside compiled graphs."""

    TRITON = _TRITON
    TRITON_TEMPLATE = _TEMPLATE
    USER_TRITON = _USERS
    CPP = _CPP
    EXTERN = _EXTERN
    EAGER = ("eager", "eager op", "is of an op that ran outside of compiled graphs' kernels")
    COMMUNICATION = ("communication", "communication", "sends or reduces between ranks")
    MEMCPY = ("memcpy", "copy", "copies memory")
    MEMSET = ("memset", "fill", "fills memory with one byte")


class Level(Term, page="words.md", title="level", columns=("launches.level", "coverage.level")):
    """How precisely a launch, or a part of it, is attributed."""

    LINE = ("line", "a source line", "is attributed to a line of the model")
    OP = ("op", "an ATen op", "is attributed to an ATen op, and to no line")
    NONE = ("none", "nothing", "is unattributed, and its gap says why", "see the gap")


class Scope(Term, page="words.md", title="scope", columns=("launches.scope", "coverage.scope")):
    """Which part of a step's wall time a row of the step time breakdown is of."""

    COMPILED = (
        "compiled",
        "compiled",
        "is when the device ran what compiled graphs launched, collectives left out",
    )
    EAGER = (
        "eager",
        "eager",
        "is when the device ran what was launched outside of them, collectives left out",
    )
    COMMUNICATION = (
        "communication",
        "exposed communication",
        "is when the device ran collectives, and nothing else at the same time",
    )
    IDLE = ("idle", "device idle", "is when the device ran nothing")


class BreakdownCategory(Term, page="words.md", title="category", columns=("coverage.category",)):
    """The category of a breakdown row that is no gap."""

    LINE = ("line", "attributed to source", "is that of launches that are attributed to lines")
    PHASE_CORRECTED = (
        "line_phase_corrected",
        "attributed to source; torch's backward tag was wrong",
        "is that of launches that are attributed to lines, where torch tagged forward work as "
        "backward; their phase is corrected",
    )
    OP = (
        "op",
        "attributed to ATen ops only",
        "is that of launches that are attributed to ops and to no line",
    )
    IDLE = ("idle", "device idle", "is that in which nothing ran")


class CacheState(Term, page="words.md", title="cache", columns=("graphs.cache_state",)):
    """How a compiled graph came to be in this process."""

    MISS = ("miss", "compiled, and cached", "was compiled here, as no cache had it")
    FX_HIT = ("fx_hit", "from Inductor's cache", "was traced here, and comes from Inductor's cache")
    AOT_HIT = (
        "aot_hit",
        "from AOTAutograd's cache",
        "comes from AOTAutograd's cache, with nothing but Dynamo's trace made here",
    )
    BYPASS = (
        "bypass",
        "not cached",
        "was compiled here and cannot be cached, so that every process compiles it",
        "the column `cache_detail` says why; what it names can often be changed",
    )
    PACKAGE = (
        "package",
        "from an AOTInductor package",
        "was compiled ahead of time, and comes from a package that carries its record",
    )
    ATTACHED = (
        "attached",
        "attached from the store",
        "is of a trace of plain torch.profiler, and was found in the store by its cache key",
    )


class IdleCause(
    Term,
    page="idle.md",
    title="idle cause",
    columns=("idle_by_cause.cause", "idle_by_line.cause", "skew.cause"),
):
    """Why a device ran nothing in a piece of time."""

    LAUNCHING = (
        "launching",
        "CPU launch overhead",
        "passed while the CPU was within operators, compiled graphs and launch calls on its way "
        "to the next launch",
        "launch less, or earlier: CUDA graphs (mode='reduce-overhead'), a larger batch, "
        "torch.compile for what runs eagerly",
    )
    PYTHON = (
        "python",
        "Python between ops",
        "passed while the CPU ran code outside of any operator on its way to the next launch: "
        "Python, as a rule",
        "move that work out of the step, or into another thread",
    )
    DATA_LOADER = (
        "data_loader",
        "data loader",
        "passed while the CPU waited in a data loader for the next batch",
        "give the loader more workers, prefetching and pinned memory, or cheaper transforms",
    )
    SYNCHRONISATION = (
        "synchronisation",
        "device synchronization",
        "passed while the CPU was still in a call that waits for the device, which had nothing "
        "left to run: cudaStreamSynchronize, a copy to pageable memory",
        "leave out what needs a value of the device at once: .item(), .cpu(), nonzero, print; or "
        "ask for it later",
    )
    AFTER_SYNCHRONISATION = (
        "after_synchronisation",
        "after a synchronization",
        "passed while the CPU did what it could have done while it waited for the device, which "
        "was busy for at least as long; its line is that of the call that waited",
        "leave out the call that waited, or ask for its value later",
    )
    AUTOGRAD = (
        "autograd",
        "autograd engine overhead",
        "passed while autograd's engine worked between or within its nodes, outside of operators",
        "compile the model, so that its backward is one node; or fewer, larger ops",
    )
    COMPILING = (
        "compiling",
        "compiling",
        "passed while torch compiled, timed kernels to choose one, or recorded a CUDA graph",
        "begin to record later, or look at what is compiled again: guards, dynamic shapes",
    )
    ALLOCATING = (
        "allocating",
        "allocating memory",
        "passed while the CPU was in a call that allocates or frees memory past torch's cache",
        "keep tensors' sizes alike, or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    )
    OTHER_RANK = (
        "other_rank",
        "waiting for another rank",
        "passed while the CPU waited for a collective of the CPU's own (gloo, MPI, UCC): it did "
        "nothing from the call until a moment after its end; a rank that waits in NCCL's kernels "
        "is busy, and `communication()` shows how long",
        "leave out the barrier, or share the work more evenly",
    )
    LAUNCH_LATENCY = (
        "launch_latency",
        "launch latency",
        "passed from the end of the launch call to the start on the device",
        "launch earlier than the device needs it: whatever lets the CPU run ahead",
    )
    BETWEEN_LAUNCHES = (
        "between_launches",
        "inter-kernel gap",
        "passed though the next launch had been enqueued before the device became idle: it changes "
        "from one to the next, or waits for what is not on this device",
        "fewer, larger kernels; if it is long, look for host callbacks and other processes",
    )
    END_OF_STEP = (
        "end_of_step",
        "end of the step",
        "passed in Python after the step's last launch: what follows is of the next step, or none",
        "look at what runs there: logging, prof.step(), the loop itself",
    )
    PROFILER = (
        "profiler",
        "profiler overhead",
        "passed while the profiler worked: CUPTI took memory for its records, or a recording ended",
        "leave it out of what you count: without a profiler it is not there",
    )
    OUTSIDE_STEPS = (
        "outside_steps",
        "outside the recorded steps",
        "passed outside of the steps that its rank recorded, while others waited for it already; "
        "only `skew()` counts such time",
        "let all ranks begin to record at once, after a barrier",
    )
    NO_LAUNCH_CALL = (
        "no_launch_call",
        "unknown: no launch call",
        "has no known cause: what ended it has no launching call in the trace",
        "begin to record between two steps, with the device idle",
    )
    NO_CPU_EVENTS = (
        "no_cpu_events",
        "unknown: no CPU events",
        "has no known cause: the trace has no operators and ranges of the CPU",
        "record with ProfilerActivity.CPU",
    )


class StepKind(Term, page="words.md", title="step kind", columns=("by_step.step_kind",)):
    """What a step of inference does, by the shapes of what its model was given."""

    PREFILL = (
        "prefill",
        "prefill",
        "runs the model over prompts, several tokens of each sequence at once",
        "pad less, cache common prefixes, and split long prompts where decoding waits for them",
    )
    DECODE = (
        "decode",
        "decode",
        "runs the model over one token of each sequence, the last that was generated",
        "CUDA graphs where the CPU is behind; a larger batch where weights are read for few tokens",
    )
    SPECULATIVE = (
        "speculative",
        "draft and verify",
        "has the calls of a draft model, and the one that verifies their tokens",
        "as many drafted tokens as are mostly accepted",
    )
    SEQUENCES = (
        "sequences",
        "whole sequences",
        "runs the model over all tokens of its sequences: of a program that decodes nothing",
    )
    BETWEEN = (
        "between",
        "between calls",
        "has no call of the model with tokens: what the program does before a prefill",
    )


class ChoiceKind(Term, page="words.md", title="autotuned choice", columns=()):
    """What autotuning (`max_autotune`) may take to compute a product, a convolution, attention."""

    LIBRARY = ("library", "library call", "calls a library, whose kernel computes no other op")
    TEMPLATE = ("template", "template", "is a kernel of a template, which may take other ops in")
    GRAPH = ("graph", "decomposition", "splits the op into several, which are compiled as a graph")


class FusionBarrier(Term, page="words.md", title="fusion barrier", columns=("fusions.barrier",)):
    """Why two kernels of a graph that pass a buffer on are not one kernel."""

    LIBRARY_CALL = (
        "library_call",
        "a library call",
        "is passed on by or to a library call, whose kernel computes no other op",
        "for products and convolutions max_autotune, unless its templates have lost: a Triton "
        "template can compute the other side",
    )
    ACCESS_ORDER = (
        "access_order",
        "order of access",
        "is stored in another order, or by other indices, than it is loaded in",
        "write and read in one layout; loop_ordering_after_fusion where it is off",
    )
    LOOP_SIZES = (
        "loop_sizes",
        "sizes of the loops",
        "is passed between loops of different sizes: a reduction and what it does not reduce",
        "reduce along one axis only; combo_kernels where the two are independent",
    )
    DEPENDENCY = (
        "dependency",
        "a kernel in between",
        "is also needed by a kernel in between, which cannot be fused with both",
        "look at the kernel in between: often a library call",
    )
    LIMIT = (
        "limit",
        "a limit of the scheduler",
        "could be kept in registers, but a heuristic of the scheduler was against it",
        "raise the limit that the reason names, and measure",
    )
    TEMPLATE = (
        "template",
        "a template",
        "is passed on by or to a template that cannot take the other side in",
        "leave only element-wise work around the product, with one user",
    )
    KIND = (
        "kind",
        "the kinds of the ops",
        "is passed between kinds of ops that Inductor never fuses",
    )
    OTHER = ("other", "another reason", "was kept for a reason in torch's own words")
    NOT_GIVEN = (
        "not_given",
        "no reason given",
        "was kept without a reason: the scheduler compared the two with others, or not at all",
    )
