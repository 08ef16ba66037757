"""The named reasons why something is not attributed.

Each meaning continues "12 launches ..."; the remedy follows it.
"""

from __future__ import annotations

from profiler_ext.records.vocabulary import NOTHING, Term

LINES_OFF = (
    "lines_off",
    "lines were switched off",
    "ran eagerly while the lines of the program were not watched, as was asked",
    "leave `lines=False`, `--no-lines` or `PROFILER_EXT_LINES=0` out",
)
LINES_NOT_RECORDED = (
    "lines_not_recorded",
    "lines were not recorded",
    "are of a trace without lines of the program: that of plain torch.profiler, or of an "
    "older profiler_ext",
    "record the steps with `profiler-ext run` or profiler_ext.profile",
)
LINES_NEED_PYTHON_312 = (
    "lines_need_python_3_12",
    "lines need Python 3.12",
    "ran eagerly on Python 3.11, and are attributed to their op (eager lines need Python 3.12)",
    "run the script with Python 3.12 or newer",
)
LINES_NEED_COLUMNS = (
    "lines_need_columns",
    "eager, and Python keeps no columns",
    "ran eagerly under a Python that keeps no columns of its code; without them Dynamo's code "
    "cannot be distinguished from the program's",
    "run the script without `-X no_debug_ranges` and PYTHONNODEBUGRANGES",
)
LINES_TAKEN = (
    "lines_tool_taken",
    "other tools watch the lines",
    "ran eagerly while other tools used both ids that sys.monitoring has for any tool",
    "run the script without one of the tools that are named below",
)
LINES_FAILED = (
    "lines_failed",
    "the watch of lines failed",
    "ran eagerly while the watch of the program's lines had failed, or its clock could not be "
    "tied to the trace's",
    "please report the failure that is named below",
)
LINES_FULL = (
    "lines_full",
    "after more lines than are kept",
    "ran eagerly after more lines than are kept in memory",
    "record fewer steps",
)
LINES_ENDED = (
    "lines_ended",
    "while the recording was ended",
    "are after the last line that was watched, while the profiler was being ended",
    "record more steps, of which the last alone holds it",
)
OUT_OF_ORDER = (
    "out_of_order",
    "eager, ran in another order than launched",
    "ran in another order than the trace says they were launched in, though a stream runs in "
    "order: at least one of each is tied to another's call",
    "profile again, and report the recording if it stays",
)
LINE_BORDER = (
    "line_border",
    "between two lines",
    "began and ended so close to the change from one line to the next that the clocks cannot "
    "separate them",
    "nothing can be done; the op and its module are right",
)
LINE_OF_HOT_CODE = (
    "line_of_hot_code",
    "in code that runs lines too fast",
    "were launched by a function that runs so many lines that to watch them would slow it "
    "down, so only the lines of other functions are known",
    "move the operators out of the loop, or record fewer steps",
)
NO_LINE_RAN = (
    "no_line_ran",
    "in a thread that runs no line",
    "were launched by a thread in which no line of the program ran, and by no backward whose "
    "forward is known",
    "the op and the thread in the trace show what ran",
)
FORWARD_NOT_RECORDED = (
    "forward_not_recorded",
    "forward before the recording",
    "are of the backward of ops that ran before the recording began",
    "begin to record between two steps",
)


class GapReason(
    Term,
    page="gaps.md",
    title="gap",
    columns=("launches.gap", "attribution.gap", "coverage.category"),
):
    """Why a launch, or a part of it, is not attributed."""

    NO_LAUNCH_CALL = (
        "no_launch_call",
        "its launch call is not in the trace",
        "have no launching call in the trace: they were enqueued before profiling began, or the "
        "profiler lost the call",
        "wait for the device before it begins, with torch.accelerator.synchronize()",
    )
    NO_LAUNCHING_OP = (
        "no_launching_op",
        "launched by no op",
        "were launched past torch's dispatcher, by a library that registers no operator",
        "make it an operator with torch.library.custom_op; the kernel's name shows what ran",
    )
    NO_CORRELATION_ID = (
        "no_correlation_id",
        "the trace does not link it to a call",
        "have no correlation id in the trace, so that the call that enqueued them is not known",
        "the profiler of this device writes none; the event's name shows what ran",
    )
    OWN_CUDA_GRAPH = (
        "own_cuda_graph",
        "replayed by the program's own CUDA graph",
        "were replayed by a CUDA graph that the program captured itself, before capture was on: "
        "one call launches all of its kernels, and no op stands around them",
        "start the script with `profiler-ext run`, or call profiler_ext.enable() before the "
        "program captures its CUDA graphs; with PROFILER_EXT=1 set PROFILER_EXT_LEARN=1, too",
    )
    REPLAY_DIFFERS = (
        "replay_differs_from_capture",
        "replayed what its capture does not show",
        "were replayed by the program's own CUDA graph, and do not fit the calls that were "
        "recorded while it was captured",
        "profile again, and report the recording if it stays",
    )
    REPLAY_BRANCHES = (
        "equal_branches_of_cuda_graph",
        "equal kernels in branches of a CUDA graph",
        "are of equal kernels that the program's CUDA graph ran on several streams at a time, so "
        "that their order does not say which is which",
        "capture the graph on one stream; the kernel and the phase show what ran",
    )
    GRAPH_NOT_CAPTURED = (
        "graph_not_captured",
        "graph compiled before capture",
        "ran in graphs that were compiled, or cached by an earlier run, before capture was on",
        "start the script with `profiler-ext run`, call profiler_ext.enable() before the first "
        "compile, or set PROFILER_EXT=1; compile cached graphs again with "
        "`profiler-ext run --recompile` or profiler_ext.enable(recompile=True)",
    )
    COMPILED_IN_CHILD = (
        "compiled_in_child_process",
        "graph compiled in a child process",
        "ran in graphs that torch compiled in a child process, where capture is not",
        "unset TORCHINDUCTOR_FX_COMPILE_MODE and compile them again",
    )
    GRAPH_AMBIGUOUS = (
        "graph_ambiguous",
        "several graphs could be meant",
        "ran in a compiled graph that several modules share, and the trace does not say which",
        "record the step with profiler_ext, which notes the graph of each call; a trace of plain "
        "torch.profiler cannot distinguish equal ones",
    )
    ALIGNMENT_MISMATCH = (
        "alignment_mismatch",
        "launches and call sites disagree",
        "do not fit the call sites of their graph: events were lost, or a CUDA graph replayed "
        "once what its recording did not run",
        "profile two steps or more, and report the recording if it stays",
    )
    AMBIGUOUS_EXTERN_RUN = (
        "ambiguous_extern_run",
        "library calls with an open boundary",
        "are library kernels that a CUDA graph replayed side by side",
        "profile one step before the replay, or start one run with `profiler-ext run`: that "
        "shows which kernels each call launches, and the store keeps it",
    )
    WRAPPER_GLUE = (
        "wrapper_glue",
        "glue of the generated wrapper",
        "are the generated wrapper's own work between its kernels, such as a copy of an input, "
        "which no node of the graph asks for",
        NOTHING,
    )
    AUTOTUNING = (
        "autotuning",
        "autotuning",
        "are trials of autotuning",
        "profile after a warm-up step",
    )
    COMPILING = (
        "compiling",
        "ops on fake tensors and constants while compiling",
        "ran while torch compiled, on fake tensors or to fold constants",
        "profile after a warm-up step",
    )
    NO_SOURCE_LINE = (
        "no_source_line",
        "no source line",
        "come from no line of the model: stock layers, or what torch added itself",
        "look at them by module or op: `profiler-ext report --by module`",
    )
    STALE_SOURCE_LINE = (
        "stale_source_line",
        "source changed since compiled",
        "have no line because the source changed after the graph was cached",
        "clear Inductor's cache folder, which `profiler-ext doctor` names",
    )
    TRACED_GRADIENT = (
        "traced_gradient_not_linked",
        "gradient taken inside the graph, not linked",
        "differentiate inside the compiled function; torch gives them the line that asks for "
        "the gradient, so they are attributed to their op only",
        "take the gradient outside of it, with loss.backward(), to have their lines",
    )
    COMPILED_AUTOGRAD = (
        "compiled_autograd",
        "compiled autograd copied an unknown graph",
        "ran in graphs of compiled autograd, and the backward graphs that they copy are not known",
        "switch capture on before the forward is compiled, and compile it in a fresh cache",
    )
    EAGER_BACKWARD = (
        "eager_backward_node",
        "autograd's own work has no line",
        "are autograd's own work in graphs of compiled autograd, the backward of what ran eagerly; "
        "torch keeps no line of it, so it is attributed to its op only",
        "compile the forward too to have their lines",
    )
    AOT_INDUCTOR = (
        "aot_inductor",
        "in no graph call: AOTInductor",
        "are Inductor's kernels outside every call of a compiled graph: calls of an AOTInductor "
        "package that carries no record, or that a process without capture ran",
        "make the package with PROFILER_EXT=1 in the environment; a trace recorded without "
        "capture is attributed with `profiler-ext attach --package`",
    )
    CALL_SITES_UNVERIFIED = (
        "call_sites_unverified",
        "call sites not verified",
        "do not fit call sites which capture could not check",
        "please report the recording",
    )
    RECORD_UNREADABLE = (
        "record_unreadable",
        "stored record cannot be read",
        "ran in graphs whose stored record cannot be read",
        "`profiler-ext cache list` shows its state, and a compile with `profiler-ext run "
        "--recompile` replaces it",
    )
    PROFILER_TAKEN = (
        "profiler_taken",
        "another profiler began",
        "were recorded until the program started its own profiler: torch allows one at a time",
        "leave the program's own profiler out of the run",
    )
    THREAD_NOT_RECORDED = (
        "thread_not_recorded",
        "the thread's operators were not recorded",
        "were launched by threads whose operators were not recorded: before torch 2.14 a recording "
        "of all threads can end the process where others run operators as it ends, so the thread "
        "that begins it is recorded alone, with autograd's for it",
        "use torch 2.14 or newer, or begin the profile in the thread whose work is in question",
    )
    RECORD_NOT_STORED = (
        "record_not_stored",
        "record was not stored",
        "ran in graphs whose record could not be stored: this run knows them, a later one may not",
        "make room in the cache folder, and leave to write in it",
    )
    CAPTURE_FAILED = (
        "capture_failed",
        "a capture hook failed",
        "ran in graphs of which a hook of capture lost what it knew: nothing is known of them",
        "please report the failure that is named below",
    )
    PARTLY_CAPTURED = (
        "partly_captured",
        "a mechanism of capture failed",
        "ran in graphs of which one mechanism of capture failed: what it alone gives is missing",
        "please report the failure that is named below",
    )
    ATTRIBUTION_FAILED = (
        "attribution_failed",
        "attribution failed where it was recorded",
        "were saved before attribution, which failed: the file's own events say nothing "
        "of lines, and they are attributed again on load",
        "please report the failure that is named below",
    )
    PRIVATE_NAME = (
        "private_name",
        "this torch lacks a private name that is read",
        "were profiled under a torch that lacks a private name which capture reads",
        "`profiler-ext doctor` shows what is unavailable without it, and which torch has it",
    )
    TORCH_BEHAVIOUR = (
        "torch_behaviour",
        "this torch was not tried, or is not its version",
        "were profiled under a torch that was not tried, or that does not do what its version "
        "says, by the private names that it has; these were followed",
        "use a release of torch that was tried; `profiler-ext doctor` shows what differs",
    )
    COMPILES_INCOMPLETE = (
        "compiles_incomplete",
        "not all compiles are known",
        "were profiled in a process of which not all compiles are known, so compile times and "
        "reasons cover the rest only",
        "switch capture on before the first compile: `profiler-ext run`, profiler_ext.enable() at "
        "the top, or PROFILER_EXT=1",
    )
    GRAPH_GONE = (
        "graph_gone",
        "its compiled code was gone",
        "were profiled in a process that had compiled graphs which nothing could run any more when "
        "the recording began: of those only the row in `graphs` is left",
        "record while they run",
    )
    CODE_NOT_KEPT = (
        "code_not_kept",
        "not all generated code was kept",
        "were profiled in a process of whose generated code not all is in the session, so that a "
        "report made elsewhere shows none for the rest",
        "make reports on the machine that has Inductor's cache",
    )
    SOURCE_OFF = (
        "source_off",
        "no text of source was kept",
        "were profiled while no text of source was kept, as was asked",
        "leave `source=False` or `--no-source` out",
    )
    LINES_OFF = LINES_OFF
    LINES_NOT_RECORDED = LINES_NOT_RECORDED
    LINES_NEED_PYTHON_312 = LINES_NEED_PYTHON_312
    LINES_NEED_COLUMNS = LINES_NEED_COLUMNS
    LINES_TAKEN = LINES_TAKEN
    LINES_FAILED = LINES_FAILED
    LINES_FULL = LINES_FULL
    LINES_ENDED = LINES_ENDED
    OUT_OF_ORDER = OUT_OF_ORDER
    LINE_BORDER = LINE_BORDER
    LINE_OF_HOT_CODE = LINE_OF_HOT_CODE
    NO_LINE_RAN = NO_LINE_RAN
    FORWARD_NOT_RECORDED = FORWARD_NOT_RECORDED
