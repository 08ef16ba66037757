"""Owns the causes that idle time can have.

Idle time is told by what ended it: the launch that ran next on the device, and what the thread
that enqueued it did from the beginning of the idle span until then.
"""

from __future__ import annotations

from profiler_ext.records.term import Term


class IdleCause(
    Term,
    page="idle.md",
    title="idle cause",
    columns=("idle_by_cause.cause", "idle_by_line.cause", "skew.cause"),
):
    """Why a device ran nothing in a piece of time."""

    LAUNCHING = (
        "launching",
        "launching",
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
        "synchronisation",
        "passed while the CPU was still in a call that waits for the device, which had nothing "
        "left to run: cudaStreamSynchronize, a copy to pageable memory",
        "leave out what needs a value of the device at once: .item(), .cpu(), nonzero, print; or "
        "ask for it later",
    )
    AFTER_SYNCHRONISATION = (
        "after_synchronisation",
        "after a synchronisation",
        "passed while the CPU did what it could have done while it waited for the device, which "
        "was busy for at least as long meanwhile; its line is that of the call that waited",
        "leave out the call that waited, or ask for its value later",
    )
    AUTOGRAD = (
        "autograd",
        "autograd's engine",
        "passed while autograd's engine worked between or within its nodes, outside of operators",
        "compile the model, so that its backward is one node; or fewer, larger ops",
    )
    COMPILING = (
        "compiling",
        "compiling",
        "passed while torch compiled, timed kernels to choose one, or recorded a CUDA graph",
        "begin to record later, or look at what is compiled once more: guards, dynamic shapes",
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
        "is busy, and `communication()` tells how long",
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
        "between launches",
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
        "the profiler itself",
        "passed while the profiler worked: CUPTI took memory for its records, or a recording ended",
        "leave it out of what you count: without a profiler it is not there",
    )
    OUTSIDE_STEPS = (
        "outside_steps",
        "outside of its steps",
        "passed outside of the steps that its rank recorded, while others waited for it already; "
        "only `skew()` counts such time",
        "let all ranks begin to record at once, after a barrier",
    )
    NO_LAUNCH_CALL = (
        "no_launch_call",
        "unknown: no launch call",
        "cannot be told: what ended it has no launching call in the trace",
        "begin to record between two steps, with the device idle",
    )
    NO_CPU_EVENTS = (
        "no_cpu_events",
        "unknown: no CPU events",
        "cannot be told: the trace has no operators and ranges of the CPU",
        "record with ProfilerActivity.CPU",
    )
