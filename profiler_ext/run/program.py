"""Runs the user's program as Python itself would: what it sees, and how it ends."""

from __future__ import annotations

import builtins
import contextlib
import functools
import io
import pkgutil
import runpy
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from importlib.abc import FileLoader
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from typing import Any, NoReturn

from profiler_ext.source_paths import folder_of, working_folder

INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Program:
    """What to run."""

    target: str  # a script, a folder or archive with a ``__main__``, or a module's name
    arguments: tuple[str, ...] = ()
    is_module: bool = False  # ``-m``

    @property
    def folder(self) -> str | None:
        """The first entry of ``sys.path``, or ``None`` with ``-P``."""
        if not self.is_module and self.holds_main:
            return str(Path(self.target).absolute())
        if sys.flags.safe_path:
            return None
        if self.is_module:
            return working_folder()
        return folder_of(self.target)

    @property
    def is_readable(self) -> bool:
        """Whether the target is a file, or a pipe, as the shell makes for ``<(command)``."""
        target = Path(self.target)
        return target.is_file() or target.is_fifo()

    @property
    def holds_main(self) -> bool:
        """Whether the target is a folder or an archive."""
        finder = pkgutil.get_importer(self.target)
        return finder is not None and finder.find_spec("__main__") is not None


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a program ended."""

    code: int
    was_interrupted: bool = False  # by Ctrl-C, which its process shall show


def run_program(start: Callable[[], object]) -> ExitStatus:
    """Run a program to the end of its main module; exceptions are printed as Python does."""
    try:
        start()
    except SystemExit as stop:
        return ExitStatus(_exit_code(stop.code))
    except BaseException as error:
        error_raised = error
    else:
        return ExitStatus(0)
    _print_as_python_does(error_raised)  # outside the handler, as the program's hook expects
    interrupted = isinstance(error_raised, KeyboardInterrupt)
    return ExitStatus(INTERRUPTED if interrupted else 1, interrupted)


def prepare_program(program: Program) -> Callable[[], object]:
    """Set the process up as Python does for a program, and return what starts it.

    ``sys.modules["__main__"]`` is the program's own until the interpreter ends, for pickle and exit
    handlers. A file that cannot be read or compiled raises when it is started; other failures here
    are ours.
    """
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    if "__mp_main__" in sys.modules:  # multiprocessing's name for it
        sys.modules["__mp_main__"] = main
    # Remove what Python put first for our command: its folder, or the working folder.
    own = (str(Path(sys.argv[0]).resolve().parent), working_folder())
    if not sys.flags.safe_path and sys.path[:1] and sys.path[0] in own:
        del sys.path[0]
    sys.argv = [program.target, *program.arguments]
    if program.folder is not None:
        sys.path.insert(0, program.folder)
    vars(main).update(__annotations__={}, __builtins__=builtins)
    if program.is_module:
        sys.argv[0] = "-m"
        return _module_runner(program.target, is_named=True)
    if program.holds_main:
        return _module_runner("__main__", is_named=False)
    return _script_runner(program.target, main)


def _module_runner(name: str, *, is_named: bool) -> Callable[[], object]:
    """Return a callable that runs a module as ``__main__``.

    Source: ``Modules/main.c``, ``pymain_run_module``, calls this function by its name.
    """
    return functools.partial(vars(runpy)["_run_module_as_main"], name, is_named)


def _script_runner(path: str, main: types.ModuleType) -> Callable[[], object]:
    """Return a callable that runs a file as ``__main__``, or raises why it cannot.

    Source: ``Python/pythonrun.c``, ``_PyRun_SimpleFile``; the file's path is absolute.
    """
    file = path if Path(path).is_absolute() else f"{working_folder()}/{path}"
    try:
        code, loader = _compiled(file)
    except (OSError, SyntaxError, ValueError) as error:
        return functools.partial(_raise, error)
    vars(main).update(__file__=file, __cached__=None, __loader__=loader("__main__", file))
    return functools.partial(exec, code, vars(main))


def _compiled(file: str) -> tuple[types.CodeType, type[FileLoader]]:
    """Return the code of a file, and its loader; it is read once, as it may be a pipe."""
    with io.open_code(file) as opened:
        text = opened.read()
    code: types.CodeType | None = pkgutil.read_code(io.BytesIO(text))
    if code is not None:
        return code, SourcelessFileLoader
    return compile(text, file, "exec", dont_inherit=True), SourceFileLoader


def _raise(error: Exception) -> NoReturn:
    raise error


def _exit_code(code: Any) -> int:
    """Return the exit code for the argument of ``sys.exit``; a text is printed.

    Source: ``Python/pythonrun.c``, ``_Py_HandleSystemExit``.
    """
    if code is None or isinstance(code, int):
        return int(code or 0)
    with contextlib.suppress(Exception):
        print(code, file=sys.stderr)
    return 1


def _print_as_python_does(error: BaseException) -> None:
    """Pass an exception to ``sys.excepthook``, with the program's own frames only."""
    error.__traceback__ = _own_frames(error.__traceback__)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    if (failed := _failure_of_hook(error)) is not None:
        with contextlib.suppress(Exception):
            print("Error in sys.excepthook:", file=sys.stderr)
        sys.__excepthook__(type(failed), failed, failed.__traceback__)
        with contextlib.suppress(Exception):
            print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(error), error, error.__traceback__)


def _failure_of_hook(error: BaseException) -> BaseException | None:
    """Call ``sys.excepthook``; an exit in it is one of the program's.

    Source: ``Python/pythonrun.c``, ``_PyErr_PrintEx``.
    """
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit:
        raise
    except BaseException as failed:
        failed.__traceback__ = _own_frames(failed.__traceback__)
        return failed
    return None


def _own_frames(trace: types.TracebackType | None) -> types.TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace
