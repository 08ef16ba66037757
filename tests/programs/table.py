"""Owns the list of programs: how each is started, and what a run must have recorded of it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

WHOLE = "whole"  # both asked steps
PART = "part"  # some session
NONE = "none"  # there was nothing to record
ANY = "any"
SERIES = "series"  # at least one, in a folder of its own

FORK_MODES = ("run", "enabled", "profile")


@dataclass(frozen=True)
class Program:
    """A program of ``scripts``.

    Attributes:
        name: what it is called in the table.
        words: script and arguments.
        session: what a run must leave.
        modes: ways it is run with us: under ``run``, with capture enabled, within a profile.
        real: it is started as a process of its own, not as a fork of one that has torch.
        flags: options of the interpreter.
        environment: more variables; an empty one is taken away.
        files: more files beside the scripts.
        stdout: another place for standard output: ``closed`` or ``full``.
        options: more of what ``run`` is asked for.
    """

    name: str
    words: tuple[str, ...]
    session: str = WHOLE
    modes: tuple[str, ...] = ("run",)
    real: bool = False
    flags: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    stdout: str = ""
    stderr: str = ""
    options: tuple[str, ...] = ()


def _of(script: str, *calls: str, asked: str = "", **options) -> list[Program]:
    return [
        Program(
            f"{script}: {call}{asked and f' ({asked})'}",
            (f"{script}.py", *call.split()),
            options=tuple(asked.split()),
            **options,
        )
        for call in calls
    ]


_WHEN = ("before", "recording", "after")
_HOW = ("trains", "exits", "leaves", "raises", "profiles", "interrupted", "goes_on")
FORKS = _of(
    "forks",
    *(f"{how} {when}" for how in _HOW for when in _WHEN),
    *(f"{how} compiling" for how in ("trains", "exits")),
    modes=FORK_MODES,
)
WORKERS = _of(
    "workers",
    *(f"{what} {how}" for what in ("loader", "processes", "pool") for how in ("fork", "spawn")),
    "program now",
    real=True,
)
FEATURES = _of(
    "features",
    *("copied", "pickled", "moved", "backends", "exported", "packaged", "transformed"),
    *("checkpointed", "branches", "subclassed", "distributed", "forks_in_threads"),
    *("faults_told", "packed_ahead", "scanned"),
    session=ANY,
)
THREADS = _of("threads", "at_once", "outlives_main", "daemon", "loop", modes=("run", "enabled"))
SIGNALS = [
    *_of(
        "signals",
        *(f"recording {name}" for name in ("SIGINT", "SIGTERM", "SIGHUP")),
        *(f"compiling {name}" for name in ("SIGINT", "SIGTERM")),
        "finishing SIGINT 0.2",
        "finishing SIGTERM 0.2",
        session=PART,
    ),
    *_of("signals", "recording SIGQUIT", "recording SIGKILL", "twice", session=ANY),
    *_of(
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
    *_of(
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
    *_of("endings", "fails forward", "fails hook", "unhandled_exit", session=PART),
    *_of("endings", "leave", session=NONE),
    *_of("endings", "handlers", "group", real=True),
]
PROFILERS = [
    *_of(
        "profilers",
        *("before", "within", "after", "scheduled_later", "exported", "autograd", "nvtx", "itt"),
        *("named", "in_thread", "nested", "observed"),
        modes=("run", "enabled", "profile"),
    ),
    *_of("profilers", "whole", "scheduled", "low_level", session=ANY, modes=FORK_MODES),
    *_of("profilers", "unstopped", session=ANY, modes=("run", "enabled")),
]
MODULES = _of(
    "modules",
    *("made_by_new", "without_super", "odd_named_children", "unhashable", "all_equal"),
    *("own_getattr", "own_getattribute", "own_class", "with_slots", "proxy", "lazy", "cyclic"),
    *("other_dict", "deleted", "own_name", "mapping", "plain"),
)
_LOCAL = "VALUE = 'mine'\ndef profile(): return 'my own'\n"
_USES = (
    "import sys, training\nimport profiler_ext\n"
    "print(profiler_ext.VALUE, profiler_ext.profile(), profiler_ext.__file__)\n"
    "training.train(6)\nimport profiler_ext as again\n"
    "print(again is profiler_ext, sorted(n for n in sys.modules if n.startswith('profiler_ext')))\n"
)
_PACKAGE = {
    "profiler_ext/__init__.py": _LOCAL,
    "profiler_ext/errors.py": "VALUE = 'my errors'\n",
    "uses.py": _USES + "from profiler_ext.errors import VALUE\nprint(VALUE)\n",
}
_EXPORTERS = {
    "exporters/__init__.py": _LOCAL,
    "exporters/tables.py": "",
    "uses.py": _USES.replace("profiler_ext", "exporters"),
}
NAMES = [
    Program(
        "a local module profiler_ext",
        ("uses.py",),
        real=True,
        files={"profiler_ext.py": _LOCAL, "uses.py": _USES},
        modes=("run", "variable"),
    ),
    Program(
        "a local package profiler_ext",
        ("uses.py",),
        real=True,
        files=_PACKAGE,
        modes=("run", "variable"),
    ),
    Program(
        "a local package exporters",
        ("uses.py",),
        real=True,
        files=_EXPORTERS,
        modes=("run", "variable"),
    ),
]
MAINS = [
    Program("what a script sees", ("mains.py", "--lr", "3"), real=True, modes=("run", "variable")),
    Program("a script in a folder", ("./../scripts/mains.py",), real=True),
    Program("a module of a package", ("-m", "package_of_test", "a", "-b"), real=True),
    Program("a module by name", ("-m", "mains", "-x"), real=True),
    Program(
        "a folder with a __main__",
        ("folder", "a"),
        real=True,
        files={
            "folder/__main__.py": "import sys\nprint(sys.argv, sys.path[0], __file__, __name__, "
            "__package__)\nsys.path.append('.')\nimport training\ntraining.train(5)\n"
        },
    ),
    Program(
        "a script that cannot be compiled", ("bad.py",), NONE, real=True, files={"bad.py": "x = ="}
    ),
    Program("a module that is not there", ("-m", "no_such.module"), NONE, real=True),
    Program(
        "a script with an encoding of its own",
        ("latin.py",),
        real=True,
        files={"latin.py": "# coding: utf-8\nimport training\ntraining.train(5)\nprint('\xe4')\n"},
    ),
]
SETTINGS = [
    *_of(
        "settings",
        *("nothing", "closed_stdout", "no_stdout", "replaced_stdout", "closed_stderr", "no_stderr"),
        *("traced", "profiled", "no_gc", "frozen_gc", "default_device", "default_dtype"),
        *("recursion", "randomness", "inference", "determinism", "deleted_folder", "moved"),
        *("no_home", "no_temporary", "cleared_environment", "lost_modules", "replaced_path"),
        *("umask", "threads_left", "files_left", "warnings_as_errors"),
        *("debugged", "profiled_while_recording", "covered", "frozen_between"),
    ),
]
_EAGER = """
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""  # what torch compiles must lie in a path of UTF-8
_NOTHING = ("settings.py", "nothing")
STARTS = [
    Program("standard output closed", _NOTHING, real=True, stdout="closed"),
    Program("standard output full", _NOTHING, PART, real=True, stdout="full"),
    Program("standard output full, silent script", ("quiet.py",), real=True, stdout="full",
            files={"quiet.py": "import training\nfor _ in range(5): training.step()\n"}),
    Program("standard error closed", _NOTHING, real=True, stderr="closed"),
    Program("standard error full", _NOTHING, real=True, stderr="full"),
    Program("ASCII output", _NOTHING, real=True, environment={"PYTHONIOENCODING": "ascii"}),
    Program(
        "the C locale",
        _NOTHING,
        real=True,
        environment={"LC_ALL": "C"},
    ),
    Program("python -O", _NOTHING, real=True, flags=("-O",)),
    Program("python -X dev", _NOTHING, real=True, flags=("-X", "dev")),
    Program("python -W error", _NOTHING, real=True, flags=("-W", "error::UserWarning")),
    Program("python -P", ("mains.py",), real=True, flags=("-P",), environment={"PYTHONPATH": "+."}),
    Program("unbuffered", _NOTHING, real=True, flags=("-u",)),
    Program("no HOME", _NOTHING, real=True, environment={"HOME": ""}),
    Program(
        "a cache that cannot be written",
        _NOTHING,
        real=True,
        files={"cache/profiler_ext": "a file in the way"},
        environment={"TORCHINDUCTOR_CACHE_DIR": "cache"},
    ),
    Program("an argument that is not UTF-8", (*_NOTHING, "of\udcff"), real=True),
    Program("a folder that is not UTF-8", ("of\udcff/eager.py",), real=True,
            files={"of\udcff/eager.py": _EAGER}),
    Program("a script that is not UTF-8", ("eager\udcff.py",), real=True,
            files={"eager\udcff.py": _EAGER}),
    Program("a cache that is not UTF-8", _NOTHING, real=True,
            environment={"TORCHINDUCTOR_CACHE_DIR": "cache\udcff"}),
    Program("no temporary folder", _NOTHING, real=True, environment={"TMPDIR": "/proc"}),
]  # fmt: skip
_FRAMES = (
    *("forks", "starts", "threads", "at_once", "generators", "recursion", "limits", "alarms"),
    *("collected", "kept", "coroutines", "replaced", "hot"),
)
MONITORS = [
    *_of("monitors", "beside", "within", "taken", "restarted", "profiled", "traced"),
    *_of("frames", *_FRAMES),
    *_of("frames", "leaves", session=NONE),
    Program("a debugger", ("-m", "pdb", "-c", "continue", "monitors.py", "traced"), ANY, real=True),
]
"""They meet the watch of lines, which Python has from 3.12 on."""
_FORWARD = "--step-on forward"
_EVALUATES = ("evaluates", "threads", "compiles", "generates", "recurses", "catches fails")
CALLS = [
    *_of("modes", *_EVALUATES, "catches interrupts", "monitored", asked=_FORWARD),
    *_of("modes", "evaluates fails", "evaluates interrupts", asked=_FORWARD, session=PART),
    *_of("modes", *_EVALUATES, "monitored", asked="--step-on :evaluate"),
    *_of("modes", "evaluates interrupts", asked="--step-on :evaluate", session=PART),
    *_of("modes", "generates", asked="--step-on :tokens"),
    *_of("modes", "recurses", asked="--step-on :recursive"),
    *_of("modes", "evaluates", asked="--step-on forward:Linear"),
]
"""Python 3.12 and newer tells of them."""
REPEATS = [
    *(
        _of("modes", f"trains{what}", asked=asked, session=SERIES)
        for what in ("", " fails", " interrupts")
        for asked in ("--every 4", "--slow 1.0001 --keep 2")
    ),
    _of("modes", "trains", asked="--steps 1ms", session=PART),
    *(
        _of("modes", f"stopped {how}", asked="--stop")
        for how in ("here", "otherwise", "fails", "interrupts")
    ),
]
MODES = [program for programs in REPEATS for program in programs]
PROGRAMS = [
    *MODES,
    *(CALLS if sys.version_info >= (3, 12) else ()),
    *(MONITORS if sys.version_info >= (3, 12) else ()),
    *FORKS, *WORKERS, *FEATURES, *THREADS, *SIGNALS, *ENDINGS, *PROFILERS, *MODULES, *NAMES, *MAINS,
    *SETTINGS, *STARTS,
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
        "settings: deleted_folder",
        "standard output full, silent script",
        "what a script sees",
        "a local package profiler_ext",
        "workers: pool spawn",
        "a folder that is not UTF-8",
    }
)
"""What CI runs; ``make programs`` runs all."""
