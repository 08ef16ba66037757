"""The list of programs."""

from __future__ import annotations

import sys

from profiler_ext.cli.common import FAILED
from verification.programs.program import (
    ANY,
    FORK_MODES,
    IN_ITS_PLACE,
    NONE,
    PART,
    SERIES,
    Program,
    programs_of,
)
from verification.programs.starts import MAINS, NAMES, STARTS

_WHEN = ("before", "recording", "after")
_HOW = ("trains", "exits", "leaves", "raises", "profiles", "interrupted", "goes_on")
FORKS = programs_of(
    "forks",
    *(f"{how} {when}" for how in _HOW for when in _WHEN),
    *(f"{how} compiling" for how in ("trains", "exits")),
    modes=FORK_MODES,
)
WORKERS = programs_of(
    "workers",
    *(f"{what} {how}" for what in ("loader", "processes", "pool") for how in ("fork", "spawn")),
    "program now",
    real=True,
)
FEATURES = programs_of(
    "features",
    *("copied", "pickled", "moved", "backends", "exported", "packaged", "transformed"),
    *("checkpointed", "branches", "subclassed", "distributed", "forks_in_threads"),
    *("faults_reported", "packed_ahead", "scanned"),
    session=ANY,
)
THREADS = programs_of(
    "threads", "at_once", "outlives_main", "daemon", "loop", modes=("run", "enabled")
)
SIGNALS = [
    *programs_of(
        "signals",
        *(f"recording {name}" for name in ("SIGINT", "SIGTERM", "SIGHUP")),
        *(f"compiling {name}" for name in ("SIGINT", "SIGTERM")),
        "finishing SIGINT 0.2",
        "finishing SIGTERM 0.2",
        *(f"late {delay}" for delay in (0.001, 0.01, 0.2)),
        session=PART,
    ),
    *programs_of("signals", "recording SIGQUIT", "recording SIGKILL", "twice", session=ANY),
    *programs_of(
        "signals",
        *(
            f"writing {name} {delay}"
            for name in ("SIGINT", "SIGTERM", "SIGHUP")
            for delay in (0.05, 0.2, 0.4)
        ),
        *(f"caught {delay}" for delay in (0.1, 0.3)),
        "handled SIGTERM",
        "handled SIGINT",
        "counted SIGUSR1",
        "counted SIGTERM",
        "alarm",
        "seen",
        "ignored",
        "fault",
    ),
]
ENDINGS = [
    *programs_of(
        "endings",
        *(
            f"code {text}"
            for text in ("None", "0", "1", "256", "-1", "3.5", "'text'", "True", "2**40", "(1,2)")
        ),
        "leave_after",
        "hooked",
        "chained",
        "interrupted",
        "syntax",
        "fails forward on",
        "fails hook on",
    ),
    *programs_of("endings", "fails forward", "fails hook", "unhandled_exit", session=PART),
    *programs_of("endings", "leave", session=NONE),
    *programs_of("endings", "handlers", "group", real=True),
]
PROFILERS = [
    *programs_of(
        "profilers",
        *("before", "within", "after", "scheduled_later", "exported", "autograd", "nvtx", "itt"),
        *("named", "in_thread", "nested", "observed"),
        modes=("run", "enabled", "profile"),
    ),
    *programs_of("profilers", "whole", "scheduled", "low_level", session=ANY, modes=FORK_MODES),
    *programs_of("profilers", "unstopped", session=ANY, modes=("run", "enabled")),
]
HANDLERS = programs_of(
    "handlers",
    *("raises", "exits", "leaves", "trains", "exports", "profiles"),
    modes=(IN_ITS_PLACE,),
)
DROP_INS = programs_of(
    "drop_in",
    *("body_raises", "body_exits", "body_leaves", "entered_twice"),
    *("used_again", "one_in_another", "ends_twice", "steps_first", "forgotten", "never_ends"),
    *("in_thread", "next_to_training", "thread_compiles", "exits_in_hook", "forks_in_block"),
    *("generated", "decorated", "at_exit", "subclassed", "odd_options", "kept_in_cycle"),
    "compiled_around",
    modes=(IN_ITS_PLACE,),
)
MODULES = programs_of(
    "modules",
    *("made_by_new", "without_super", "odd_named_children", "unhashable", "all_equal"),
    *("own_getattr", "own_getattribute", "own_class", "with_slots", "proxy", "lazy", "cyclic"),
    *("other_dict", "deleted", "own_name", "mapping", "plain"),
)
SETTINGS = [
    *programs_of(
        "settings",
        *("nothing", "closed_stdout", "no_stdout", "replaced_stdout", "closed_stderr", "no_stderr"),
        *("traced", "profiled", "no_gc", "frozen_gc", "default_device", "default_dtype"),
        *("recursion", "randomness", "inference", "determinism", "deleted_folder", "moved"),
        *("no_home", "no_temporary", "cleared_environment", "lost_modules", "replaced_path"),
        *("umask", "threads_left", "files_left", "warnings_as_errors"),
        *("debugged", "profiled_while_recording", "covered", "frozen_between"),
    ),
]
SURROUNDINGS = programs_of(
    "surroundings",
    *("few_files", "closed_files", "little_memory", "small_stacks"),
    *("timer", "sampled", "collector_called", "collector_fails", "memory_traced", "at_exit"),
    *("fails_at_exit", "thread_exits", "thread_hook", "starts_itself", "shallow"),
    *("errors_first", "warned_once", "warnings_fail", "loggers_disabled", "wanders", "awaits"),
    *("generates", "time_stands", "no_main", "odd_arguments"),
    *("lines_unreadable", "short_tracebacks", "hurried"),
)
SURROUNDINGS += programs_of(
    "surroundings", "trains_at_exit", "replaces_itself", "nowhere_to_import_from", session=ANY
)
DISKS = [
    *programs_of(
        "disks",
        *(f"renames {name}" for name in ("EXDEV", "ESTALE", "EACCES")),
        *(f"syncs {name}" for name in ("EIO", "EDQUOT")),
        *(f"files_made {name}" for name in ("ENOSPC", "EROFS")),
        *("small_files 4000", "small_files 20000"),
        session=NONE,
        code=FAILED,  # what was recorded is lost, which one sentence says
    ),
    *programs_of("disks", "own_open", "no_open", "removed_output", "stale_folder"),
    *programs_of("disks", "other_modules", session=ANY),
]
REPLACED = programs_of(
    "replaced",
    *("compile", "reset", "stance", "profile", "modules", "stdout", "module_hooks", "folder"),
    "process",
)
TORCH_USES = programs_of(
    "torch_uses",
    *("compiled_as", "left_out", "forgets", "configures", "exports", "scripts", "functional"),
    *("copied_optimizer", "closures", "steps_in_backward", "scaled", "hooked", "hooked_everywhere"),
    *("called_otherwise", "swapped", "packed", "faked", "counted", "odd_modes"),
)
_FRAMES = (
    *("forks", "starts", "threads", "at_once", "generators", "recursion", "limits", "alarms"),
    *("collected", "kept", "coroutines", "replaced", "hot"),
)
MONITORS = [
    *programs_of("monitors", "next_to", "within", "taken", "restarted", "profiled", "traced"),
    *programs_of("frames", *_FRAMES),
    *programs_of("frames", "leaves", session=NONE),
    Program("a debugger", ("-m", "pdb", "-c", "continue", "monitors.py", "traced"), ANY, real=True),
]
"""They meet the watch of lines, which Python has from 3.12 on."""
_FORWARD = "--step-on forward"
_EVALUATES = ("evaluates", "threads", "compiles", "generates", "recurses", "catches fails")
CALLS = [
    *programs_of("modes", *_EVALUATES, "catches interrupts", "monitored", asked=_FORWARD),
    *programs_of("modes", "evaluates fails", "evaluates interrupts", asked=_FORWARD, session=PART),
    *programs_of("modes", *_EVALUATES, "monitored", asked="--step-on :evaluate"),
    *programs_of("modes", "evaluates interrupts", asked="--step-on :evaluate", session=PART),
    *programs_of("modes", "generates", asked="--step-on :tokens"),
    *programs_of("modes", "recurses", asked="--step-on :recursive"),
    *programs_of("modes", "evaluates", asked="--step-on forward:Linear"),
]
"""Python 3.12 and newer tells of them."""
REPEATS = [
    *(
        programs_of("modes", f"trains{what}", asked=asked, session=SERIES)
        for what in ("", " fails", " interrupts")
        for asked in ("--every 4", "--slow 1.0001 --keep 2")
    ),
    programs_of("modes", "trains", asked="--steps 1ms", session=PART),
    *(
        programs_of("modes", f"stopped {how}", asked="--stop")
        for how in ("here", "otherwise", "fails", "interrupts")
    ),
]
MODES = [program for programs in REPEATS for program in programs]
PROGRAMS = [
    *MODES,
    *(CALLS if sys.version_info >= (3, 12) else ()),
    *(MONITORS if sys.version_info >= (3, 12) else ()),
    *FORKS, *WORKERS, *FEATURES, *THREADS, *SIGNALS, *ENDINGS, *PROFILERS, *HANDLERS, *DROP_INS,
    *MODULES, *NAMES, *MAINS, *SETTINGS, *SURROUNDINGS, *DISKS, *REPLACED, *TORCH_USES, *STARTS,
]  # fmt: skip
FAST = frozenset(
    {
        "forks: trains recording",
        "forks: exits after",
        "signals: recording SIGTERM",
        "signals: writing SIGINT 0.2",
        "signals: caught 0.3",
        "endings: interrupted",
        "endings: fails hook",
        "profilers: within",
        "profilers: scheduled",
        "modules: made_by_new",
        "modules: unhashable",
        "modules: other_dict",
        "threads: outlives_main",
        *("modes: trains (--every 4)", "modes: stopped interrupts (--stop)"),
        "modes: catches fails (--step-on forward)",
        *("monitors: within", "frames: recursion", "frames: kept"),
        *("settings: deleted_folder", "settings: randomness", "settings: no_temporary"),
        *("disks: renames ESTALE", "handlers: raises", "replaced: profile"),
        *("disks: stale_folder", "drop_in: in_thread", "endings: hooked", "features: pickled"),
        *("surroundings: time_stands", "torch_uses: forgets"),
        "standard output full, silent script",
        "what a script sees",
        "a local package profiler_ext",
        "workers: pool spawn",
        "a folder that is not UTF-8",
    }
)
"""What CI runs; ``make programs`` runs all."""
