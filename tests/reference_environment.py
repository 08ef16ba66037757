"""The list of variables of the environment that are read; a test holds it against the code."""

OURS = (
    (
        "PROFILER_EXT",
        "off",
        "`1`: an installed copy enables capture in each process that imports torch",
    ),
    (
        "PROFILER_EXT_SESSIONS",
        "",
        "a folder: with `PROFILER_EXT=1`, each recording of the program's own "
        "`torch.profiler.profile` is also [written to it as a session](../guides/vllm.md)",
    ),
    (
        "PROFILER_EXT_RIDE",
        "`1`",
        "`0`: keep provenance in the store only, not on Inductor's cached artifacts",
    ),
    (
        "PROFILER_EXT_LEARN",
        "on with a recording",
        "`0`: never profile the calls that warm up and record a CUDA graph; which kernel of a "
        "replay belongs to which of several neighbouring library calls is then known only from the "
        "store. `1`: profile them if the store lacks them, even without a recording",
    ),
    (
        "PROFILER_EXT_LINES",
        "`1`",
        "`0`: record no lines in any process, as `--no-lines` sets for one run",
    ),
    (
        "PROFILER_EXT_MEMORY",
        "",
        "`oom`: where memory of a GPU runs out, write [what was alive](../memory.md), with each "
        "block's line; with `PROFILER_EXT=1`, `profiler-ext run`, `enable()` or `profile`",
    ),
    (
        "PROFILER_EXT_COMMUNICATION",
        "",
        "names of kernels and ops that communicate, with `;` between them, in addition to "
        "[those that are known](communication.md); `*` stands for any text",
    ),
    (
        "PROFILER_EXT_TRY",
        "",
        "`1` in each run of `profiler-ext try`, which sets it for the script to read",
    ),
    (
        "PROFILER_EXT_STORE_BYTES",
        "536870912",
        "bytes of provenance to keep next to Inductor's cache; least recently used entries are "
        "deleted first",
    ),
)
OTHERS = (
    ("RANK", "0", "the rank, in the name of a session's folder; with `WORLD_SIZE`"),
    ("WORLD_SIZE", "1", "if above 1, each rank writes into its own folder"),
    (
        "TORCHINDUCTOR_CACHE_DIR",
        "torch's own folder",
        "Inductor's cache, and the store of compiled graphs",
    ),
    (
        "TEARDOWN_CUPTI",
        "torch's own",
        "`1`: Kineto detaches CUPTI after a recording; `run` then calls CUDA again at its end, "
        "which Kineto waits for",
    ),
    (
        "KINETO_LOG_LEVEL",
        "`run` without a GPU: `6`, nothing",
        "Kineto's: what it logs on standard error; `run` sets it for the moment in which Kineto "
        "reads it, and only where there is no GPU that an error could be about",
    ),
    ("CUDA_LAUNCH_BLOCKING", "`0`", "CUDA's: a recommendation names it where it is on"),
    (
        "TORCH_SHOW_DISPATCH_TRACE",
        "",
        "torch's: a recommendation names it where it is set",
    ),
    ("GITHUB_WORKSPACE", "the working folder", "`diff --github`: file names are relative to it"),
    ("GITHUB_STEP_SUMMARY", "", "`diff --github`: file that the summary is appended to"),
    ("COLUMNS", "the terminal's", "width of a report; help has 80 columns at most"),
    ("NO_COLOR", "", "any value: no colours"),
)
