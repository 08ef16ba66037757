"""How a failure is planted: each function of the package can be made to raise, once.

A finder that stands before Python's own compiles the package's modules with a call at the head of
each function; nothing else of them changes, line numbers included.
"""

from __future__ import annotations

import ast
import collections
import contextlib
import enum
import functools
import importlib.abc
import importlib.machinery
import os
import sys
import types
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path
from typing import ClassVar

PACKAGE = "profiler_ext"
_ROOT = Path(__file__).parents[2]
_OWN = tuple(str(_ROOT / folder) for folder in (PACKAGE, "exporters"))
_INIT = str(_ROOT / PACKAGE / "__init__.py")
_GUARD = str(_ROOT / PACKAGE / "isolation" / "guard.py")
_STANDARD = (collections, contextlib, enum, functools)
_BETWEEN = {"<string>", *(module.__file__ for module in _STANDARD)}
THE_DOOR = frozenset(
    f"profiler_ext.{name}"
    for name in (
        "cli:main",
        "isolation.guard:Guard.__init__",
        "isolation.guard:Guard.run",
        "isolation.guard:Guard.run_on",
        "isolation.guard:Guard.try_run",
        "isolation.guard:Guard.wrap.guarded",
        "isolation.guard:Guard.callback.guarded",
        "isolation.guard:Guard.wrap_ranges.guarded",
        "isolation.guard:Guard.wrap_results.guarded",
        "isolation.guard:Guard.wrap_candidates.guarded",
        "isolation.hook_protocols:Sorting.in_order",
        "isolation.user_state:user_code",
        "isolation.user_state:isolated",
        "isolation.user_state:_Isolation.__enter__",
        "isolation.user_state:_Isolation.__exit__",
        "isolation.user_state:_Isolation.__init__",
        "isolation.user_state:_Isolation.begin",
        "isolation.user_state:_Isolation.end",
        "python_lines.watch:LineWatch._callbacks.thrown",
        "python_lines.watch:LineWatch._callbacks.unwound",
        "python_lines.watch:LineWatch._entering.entered",
        "python_lines.watch:LineWatch._resuming.resumed",
        "python_lines.watch:LineWatch._moving.moved",
        "python_lines.watch:LineWatch._leaving.left",
        "python_lines.watch:LineWatch._fail",
        "torch_compat.profilers:ProfilerUse.own",
    )
)
"""What catches failures cannot fail itself: a few lines that call, catch and return."""
CALLED_BY_THE_USER = frozenset(
    (
        "profiler_ext:__getattr__",
        *(
            f"profiler_ext.profiling.profiler:profile.{name}"
            for name in (
                "__init__",
                "start_trace",
                "step",
                "_on_cycle_end",
                "deliver",
            )
        ),
        *(
            f"profiler_ext.profiling.lines:LineWatchingProfiler.{name}"
            for name in ("__init__", "step", "prepare_trace", "start_trace", "stop_trace")
        ),
        *(
            f"profiler_ext.profiling.recorded_threads:ThreadRecordingProfiler.{name}"
            for name in ("start_trace", "stop_trace")
        ),
        *(
            f"profiler_ext.profiling.exclusive:ExclusiveProfiler.{name}"
            for name in (
                "__init__",
                "start",
                "step",
                "stop",
                "prepare_trace",
                "start_trace",
                "stop_trace",
            )
        ),
    )
)
"""What the script calls itself, or torch's profiler for it: a door of the same kind, since what
torch does in there must be done once, whatever fails."""
ASKED_FOR = frozenset(
    (
        "profiler_ext.profiling.profiler:profile.session",
        "profiler_ext.sessions.session:Session.save",
    )
)
"""What the script asks for when it has trained; that it is not there may be an error."""

_MOST_CALLERS = 200
"""Of so many calls of a function it is looked who calls: some are called a million times."""


@dataclass
class Planted:
    """Which function fails, with what, at which of its calls; and what has run so far.

    Attributes:
        function: ``module:qualified name``; empty where none fails.
        error: what it raises.
        call: the number of the call that raises, from 1.
        is_armed: failures are raised and calls counted.
        calls: how often each function was called.
        entered: what torch, Python or the script called with no guard in between.
        fired: the function has raised.
        wanted: the functions at which the run may branch.
        branch: called with such a function and the number of its call; may raise.
        is_spared: the script imports the package: it gets what fails in there, as of any import.
    """

    function: str = ""
    error: type[BaseException] = RuntimeError
    call: int = 1
    is_armed: bool = False
    fired: bool = False
    is_spared: bool = False
    calls: Counter[str] = field(default_factory=Counter)
    entered: set[str] = field(default_factory=set)
    wanted: set[str] = field(default_factory=set)
    branch: Callable[[str, int], None] = lambda function, call: None

    def __call__(self, function: str) -> None:
        """Stand at the head of each function."""
        if not self.is_armed or self.is_spared or self.fired:
            return
        self.calls[function] += 1
        if self.calls[function] <= _MOST_CALLERS:
            self._see_caller(function)
        if function == self.function and self.calls[function] == self.call:
            self.fired = True
            raise self.error("planted")
        if function in self.wanted:
            self.branch(function, self.calls[function])

    def _see_caller(self, function: str) -> None:
        caller = sys._getframe(3)
        while caller.f_back is not None and caller.f_code.co_filename in _BETWEEN:
            caller = caller.f_back
        if not caller.f_code.co_filename.startswith(_OWN) and _is_past_the_door(caller):
            self.entered.add(function)


PLANTED = Planted()


def _is_past_the_door(frame: types.FrameType | None) -> bool:
    """Tell whether no guard stands between a frame and the script, or the thread's beginning."""
    while frame is not None and frame.f_code.co_filename != _GUARD:
        if frame.f_code.co_name in ("run_program", "main"):
            return frame.f_code.co_name == "run_program"
        frame = frame.f_back
    return frame is None


class _Heads(ast.NodeTransformer):
    """Puts the call at the head of each function."""

    def __init__(self, module: str) -> None:
        self._names: list[str] = []
        self._module = module

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self._names.append(node.name)
        self.generic_visit(node)
        self._names.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._names.append(node.name)
        self.generic_visit(node)
        name = f"{self._module}:{'.'.join(self._names)}"
        self._names.pop()
        call = ast.parse(f"__planted__({name!r})").body[0]
        at = 1 if ast.get_docstring(node, clean=False) is not None else 0
        for each in ast.walk(call):
            if isinstance(each, ast.stmt | ast.expr):
                ast.copy_location(each, node)
        node.body.insert(at, call)
        return node


def _with_heads(module: str, path: Path) -> types.CodeType:
    tree = _Heads(module).visit(ast.parse(path.read_bytes()))
    return compile(tree, str(path), "exec", dont_inherit=True)


def _codes() -> dict[str, types.CodeType]:
    """Compile the whole package, so that no fork of this process need."""
    files = (
        Path(folder, name)
        for folder, _, names in os.walk(_ROOT / PACKAGE, followlinks=True)
        for name in names
        if name.endswith(".py")
    )
    of_module = {".".join(path.relative_to(_ROOT).with_suffix("").parts): path for path in files}
    named = {name.removesuffix(".__init__"): path for name, path in of_module.items()}
    return {name: _with_heads(name, path) for name, path in named.items()}


class _Loader(importlib.machinery.SourceFileLoader):
    codes: ClassVar[dict[str, types.CodeType]] = {}

    def get_code(self, fullname: str) -> types.CodeType:
        return self.codes[fullname]

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module)["__planted__"] = PLANTED
        was, PLANTED.is_spared = PLANTED.is_spared, _script_imports(sys._getframe(1))
        try:
            super().exec_module(module)
        finally:
            PLANTED.is_spared = was


def _script_imports(frame: types.FrameType | None) -> bool:
    """Tell whether a name of the package that the script asks for is looked up: an import."""
    while frame is not None:
        code = frame.f_code
        if code.co_filename == _INIT and code.co_name == "__getattr__":
            return True
        frame = frame.f_back
    return False


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.split(".")[0] != PACKAGE:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin and spec.origin.endswith(".py"):
            spec.loader = _Loader(name, spec.origin)
        return spec


def plant() -> None:
    """Have every function of the package able to fail; it must not be imported yet."""
    assert not any(name.split(".")[0] == PACKAGE for name in sys.modules)
    _Loader.codes = _codes()
    sys.meta_path.insert(0, _Finder())
