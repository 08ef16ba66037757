"""The cell magic ``%%profile_ext``, which ``%load_ext profiler_ext`` gives a notebook."""

from __future__ import annotations

import argparse
import ast
import linecache
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import torch.profiler
from IPython.core.error import UsageError  # shown without a traceback
from IPython.core.magic import no_var_expand
from IPython.display import display

from profiler_ext.profiling.profiler import profile
from profiler_ext.sessions.session import Session
from profiler_ext.source_paths import cell_number

MAGIC = "profile_ext"
_PROFILER, _SESSION = "prof", "profile"
_MISSING = object()


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise instead of ending the program, which is the notebook."""
        raise UsageError(f"{self.format_usage().strip()}: {message}")


def _parser() -> _Parser:
    parser = _Parser(prog=f"%%{MAGIC}", description=_profile_cell.__doc__, add_help=False)
    add = parser.add_argument
    add("-v", "--variable", metavar="NAME", default=_SESSION, help="name of the session")
    add("-o", "--output", metavar="DIR", help="save the session in this folder")
    add("--skip", metavar="N", type=int, default=0, help="steps before the first recorded one")
    add("--steps", metavar="N", type=int, default=1, help="steps to record (default: 1)")
    add("--shapes", action="store_true", help="record the shapes of eager ops' inputs")
    add("--no-lines", action="store_true", help="do not watch which lines run")
    add("--no-source", action="store_true", help="keep no source text in the session")
    add("--recompile", action="store_true", help="compile cached graphs once more")
    return parser


def register(shell: Any) -> None:
    """Add the magic to a shell."""

    @no_var_expand
    def profile_ext(line: str, cell: str) -> None:
        __tracebackhide__ = True  # a failing cell shows its own lines
        _profile_cell(shell, line, cell)

    profile_ext.__doc__ = _parser().format_help()
    shell.register_magic_function(profile_ext, "cell", MAGIC)


def _profile_cell(shell: Any, line: str, cell: str) -> None:
    """Profile the cell as one step, and show where its time went.

    With --skip or --steps the cell runs several times, a step each. A cell that calls prof.step()
    in a loop ends its steps itself, and runs once.
    """
    __tracebackhide__ = True
    options = _parser().parse_args(shlex.split(line))
    _check(options, shell.user_ns)
    run = _compiled(shell, f"# %%{MAGIC} {line}".rstrip(), cell)
    prof = profile(
        lines=not options.no_lines,
        source=not options.no_source,
        recompile=options.recompile,
        record_shapes=options.shapes,
        schedule=_schedule(options.skip, options.steps),
    )
    with _named(shell.user_ns, _PROFILER, prof), prof:
        for _ in range(options.skip + options.steps):
            stepped = prof.step_num
            run()
            if prof.step_num != stepped:
                break
            prof.step()
    session = shell.user_ns[options.variable] = prof.session
    if options.output is not None:
        print(session.save(options.output))
    display(session)  # type: ignore[no-untyped-call]


def _check(options: Any, names: dict[str, Any]) -> None:
    if not options.variable.isidentifier():
        raise UsageError(f"-v {options.variable}: a variable's name is expected")
    if options.skip < 0 or options.steps < 1:
        raise UsageError("--skip must be 0 or more, and --steps 1 or more")
    if not isinstance(names.get(options.variable), Session | None):
        raise UsageError(
            f"{options.variable} is not a session here and would be overwritten; "
            "choose a name for the session with -v NAME"
        )


def _schedule(skip: int, steps: int) -> Callable[[int], Any] | None:
    if (skip, steps) == (0, 1):
        return None  # all steps that the cell ends itself
    warmup = min(skip, 1)
    return torch.profiler.schedule(wait=skip - warmup, warmup=warmup, active=steps, repeat=1)


@contextmanager
def _named(names: dict[str, Any], name: str, value: object) -> Iterator[None]:
    """Give a variable a value for a while."""
    before = names.get(name, _MISSING)
    names[name] = value
    try:
        yield
    finally:
        names.pop(name, None)
        if before is not _MISSING:
            names[name] = before


def _cell_file() -> str | None:
    """Return the file name of the running cell."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and cell_number(frame.f_code.co_filename) is None:
        frame = frame.f_back
    return None if frame is None else frame.f_code.co_filename


def _compiled(shell: Any, first_line: str, cell: str) -> Callable[[], None]:
    """Compile a cell's body under the cell's name, its lines numbered as the notebook shows them.

    The cell that IPython runs is one call of the magic; its text becomes that of the notebook. Like
    IPython itself, it shows the value of a last expression.
    """
    code = shell.transform_cell(f"{first_line}\n{cell}")
    file = _cell_file() or shell.compile.cache(code, shell.execution_count, raw_code=code)
    linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
    tree = shell.transform_ast(shell.compile.ast_parse(code, filename=file))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    parts = [shell.compile(tree, file, "exec")]
    if last is not None:
        parts.append(shell.compile(ast.Interactive([last]), file, "single"))

    def run() -> None:
        __tracebackhide__ = True
        for part in parts:
            shell.ex(part)

    return run
