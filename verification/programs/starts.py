"""The programs whose start is odd: their name, place, folder, interpreter, or surroundings."""

from __future__ import annotations

from verification.programs.program import NONE, PART, Program

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


def _user(name: str, files: dict[str, str]) -> Program:
    """Return a program that imports its own module of one of our names."""
    return Program(name, ("uses.py",), real=True, files=files, modes=("run", "variable"))


NAMES = [
    _user("a local module profiler_ext", {"profiler_ext.py": _LOCAL, "uses.py": _USES}),
    _user("a local package profiler_ext", _PACKAGE),
    _user("a local package exporters", _EXPORTERS),
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
    Program("python -OO", _NOTHING, real=True, flags=("-OO",)),
    Program("python -X faulthandler", _NOTHING, real=True, flags=("-X", "faulthandler")),
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
