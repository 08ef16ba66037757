"""Owns the closed vocabularies of what ran: one word for one thing, everywhere."""

from __future__ import annotations

from profiler_ext.records.term import Term

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


class Phase(
    Term,
    page="words.md",
    title="phase",
    columns=("launches.phase", "attribution.phase", "graphs.phase", "by_phase.phase"),
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
        "computes a value of the forward once more for the backward, as a checkpoint asks",
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
    """How far a launch, or a part of it, was led back."""

    LINE = ("line", "a source line", "is led to a line of the model")
    OP = ("op", "an ATen op", "is led to an ATen op, and to no line")
    NONE = ("none", "nothing", "is led nowhere, and its gap says why", "see the gap")


class Scope(Term, page="words.md", title="scope", columns=("launches.scope", "coverage.scope")):
    """Which part of a step's wall time a row of the ledger is of."""

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
    """What a row of the ledger was led to, where it is no gap."""

    LINE = ("line", "led to source lines", "is that of launches that are led to lines")
    PHASE_CORRECTED = (
        "line_phase_corrected",
        "led to lines; torch's backward tag was wrong",
        "is that of launches that are led to lines, where torch tagged forward work as backward; "
        "their phase is put right",
    )
    OP = ("op", "led to ATen ops only", "is that of launches that are led to ops and to no line")
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
    ATTACHED = (
        "attached",
        "attached from the store",
        "is of a trace of plain torch.profiler, and was found in the store by its cache key",
    )
