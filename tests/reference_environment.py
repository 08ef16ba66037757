"""The list of variables of the environment that are read; a test holds it against the code."""

OURS = (
    (
        "PROFILER_EXT",
        "off",
        "`1`: of an installed copy: capture is on in each process from when it imports torch",
    ),
    (
        "PROFILER_EXT_RIDE",
        "`1`",
        "`0`: provenance is not put on Inductor's cached artifacts, but into the store alone",
    ),
    (
        "PROFILER_EXT_LEARN",
        "where a recording is asked for",
        "`0`: calls that warm up and record a CUDA graph are never profiled; which kernel belongs "
        "to which of several neighbouring library calls is then known in replays as far as the "
        "store has it. `1`: they are, where the store lacks it, though nobody asks for a recording",
    ),
    (
        "PROFILER_EXT_LINES",
        "`1`",
        "`0`: which lines run is not watched in any process, as `--no-lines` says of one run",
    ),
    (
        "PROFILER_EXT_COMMUNICATION",
        "",
        "names of kernels and ops that communicate, with `;` between them, besides "
        "[those that are known](communication.md); `*` stands for any text",
    ),
    (
        "PROFILER_EXT_STORE_BYTES",
        "536870912",
        "how many bytes of provenance are kept beside Inductor's cache; what was used longest ago "
        "goes first",
    ),
)
OTHERS = (
    ("RANK", "0", "the rank, by which a session's folder is named; with `WORLD_SIZE`"),
    ("WORLD_SIZE", "1", "above 1 each rank writes into a folder of its own"),
    (
        "TORCHINDUCTOR_CACHE_DIR",
        "torch's own folder",
        "where Inductor's cache is, and what is kept of compiled graphs",
    ),
    (
        "TEARDOWN_CUPTI",
        "torch's own",
        "Kineto's: `1`: CUPTI is detached after a recording; `run` then calls CUDA once more at "
        "its end, which Kineto waits for",
    ),
    (
        "KINETO_LOG_LEVEL",
        "`run` without a GPU: `6`, nothing",
        "Kineto's: what it logs on standard error; `run` sets it for the moment in which Kineto "
        "reads it, and only where there is no GPU that an error could be about",
    ),
    ("GITHUB_WORKSPACE", "the working folder", "of `diff --github`: below which files are named"),
    ("GITHUB_STEP_SUMMARY", "", "of `diff --github`: where the summary is added"),
    ("COLUMNS", "the terminal's", "how wide a report is; help has 80 columns at most"),
    ("NO_COLOR", "", "set to anything: reports have no colours"),
)
