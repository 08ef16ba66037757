"""What the commands share: the parser, options, output and exit codes.

A closed or full standard output is an error in one sentence; a reader that left is none. Each text
is flushed: in ``run`` the stream is also the script's, and our output must not fail at exit.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, cast

from profiler_ext.errors import OutputError, StdoutClosedError, UsageError
from profiler_ext.printable import printable, printable_lines

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

    from profiler_ext.exporters.json_output.documents import Answer
    from profiler_ext.exporters.terminal.console import Console
    from profiler_ext.run.program import Program

_WIDTH = 80  # help is no wider, however wide the terminal is
_NAMES_WIDTH = 24
_FIRST_COLUMN = 12
FAILED = 2
NEVER_STEPPED = 3
ABOVE_LIMIT = 4
TOO_FEW = 5
STDOUT_CLOSED = 141
# What each status of a command means; `run` has the script's own where that is not 0
STATUSES = {
    0: "success",
    FAILED: "an error, explained in one sentence on standard error; an invalid command line; or "
    "`doctor` found that capture cannot work here",
    NEVER_STEPPED: "`run`: no step boundary was found, so there is no session",
    ABOVE_LIMIT: "`report --fail-above`: a recommendation is above the limit; `diff --fail-if`: a "
    "condition holds",
    TOO_FEW: "`diff --fail-if`: too few steps or runs to decide, or steps that cannot be compared",
    STDOUT_CLOSED: "the reader of standard output has closed it, as `| head` does",
}
DEFAULT = "(default: %(default)s)"
FOLDER = Path("profile_out")  # of the last run

_PYTHON = re.compile(r"python[\d.]*")


def write(text: str) -> None:
    """Print a clean text; raises OutputError or StdoutClosedError."""
    try:
        _write_to(sys.stdout, text)
    except (OSError, ValueError) as error:
        if isinstance(error, BrokenPipeError):
            raise StdoutClosedError("nobody reads standard output any more") from error
        reason = getattr(error, "strerror", None) or "it is closed"
        raise OutputError(f"cannot write to standard output: {reason}") from error


def print_line(line: str) -> None:
    """Print one line; terminals get it without control characters."""
    write((printable(line) if _is_terminal(sys.stdout) else line) + "\n")


def print_message(sentence: str) -> None:
    """Print a sentence about the run on standard error, if that can be written."""
    with suppress(OSError, ValueError):
        _write_to(sys.stderr, f"profiler-ext: {printable(sentence)}\n")


def print_usage(text: str) -> None:
    """Print the argument parser's text on standard error."""
    with suppress(OSError, ValueError):
        _write_to(sys.stderr, text)


def console(file_width: int | None = None) -> Console:
    """Return a console on standard output; ``file_width`` is for a file or a pipe."""
    from profiler_ext.exporters.terminal.console import Console

    made = Console(file=cast(IO[str], _Printed()), highlight=False)
    if file_width is not None and not made.is_terminal:
        made.width = file_width
    return made


class _Printed(io.TextIOBase):
    """Standard output for a console: every text goes through :func:`write`."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return _encoding(sys.stdout)

    def isatty(self) -> bool:
        return _is_terminal(sys.stdout)

    def write(self, text: str) -> int:
        write(text)
        return len(text)


def _write_to(stream: IO[str] | None, text: str) -> None:
    if stream is None:
        raise OSError(errno.EBADF, "it is closed")
    flush = getattr(stream, "flush", _no_flush)
    flush()  # what others wrote; where that fails, it is theirs to tell
    encoding = _encoding(stream)
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError), _redirected_to_devnull(stream):
            stream.flush()
        raise


def _no_flush() -> None:
    pass


@contextmanager
def _redirected_to_devnull(stream: IO[str]) -> Iterator[None]:
    """Redirect a stream to the null device for the block, to drop what is left in it."""
    number = stream.fileno()
    saved_fd = os.dup(number)
    devnull = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(devnull, number)
        yield
    finally:
        os.dup2(saved_fd, number)
        os.close(devnull)
        os.close(saved_fd)


def _encoding(stream: IO[str] | None) -> str:
    return getattr(stream, "encoding", None) or "utf-8"


def _is_terminal(stream: IO[str] | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except (ValueError, AttributeError):  # it is closed, or a program's own and only written to
        return False


class Parser(argparse.ArgumentParser):
    """An argument parser that prints as the commands do."""

    takes_program = False  # words after the first ``--`` are a program's, as the option ``program``

    def __init__(self, **options: Any) -> None:
        self._width = min(_WIDTH, shutil.get_terminal_size().columns)
        options["formatter_class"] = partial(
            argparse.RawDescriptionHelpFormatter, width=self._width, max_help_position=_NAMES_WIDTH
        )
        super().__init__(**options)

    def format_help(self) -> str:
        """Return the help; examples keep their line breaks, the description is filled."""
        self.description = textwrap.fill(self.description or "", self._width)
        return super().format_help()

    def show_examples(self, *examples: tuple[str, str]) -> None:
        """End the help with examples."""
        lines = (f"  # {what}\n  {command}" for what, command in examples)
        self.epilog = "\n".join(("examples:", *lines))

    def error(self, message: str) -> NoReturn:
        """End with the message, and what prints the help."""
        text = f"{self.prog}: error: {message} (see {self.prog} --help)\n"
        self.exit(FAILED, f"{self.format_usage()}{text}")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return what the words say; an unknown option gets a suggestion."""
        program: list[str] = []
        if self.takes_program and "--" in args:
            at = args.index("--")
            args, program = args[:at], [*args[at + 1 :]]
        options, unknown = self.parse_known_args(args, namespace)
        if self.takes_program:
            options.program = program
        if unknown:
            closest = _closest(unknown[0].partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{closest}")
        return options

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            closest = _closest(str(value), action.choices or ())
            message = f"invalid choice: {value!r}{closest}" if closest else error.message
            raise argparse.ArgumentError(action, message) from None

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        if message:
            (print_usage if file is sys.stderr else write)(printable_lines(message))


def _closest(word: str, known: Iterable[Any]) -> str:
    """Return the question for the known word that is closest, if one is close."""
    from difflib import get_close_matches

    matches = get_close_matches(word, map(str, known), n=1)
    return f"; did you mean {matches[0]}?" if matches else ""


def help_group(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """Return a group of a help text; long words go on below where they began."""
    width = max(_FIRST_COLUMN, *(len(name) + 2 for name, _ in rows))
    lines = (
        textwrap.fill(
            words,
            min(_WIDTH, shutil.get_terminal_size().columns),
            initial_indent=f"  {name:<{width}}",
            subsequent_indent=" " * (width + 2),
            drop_whitespace=True,
        )
        for name, words in rows
    )
    return "\n".join((f"{title}:", *lines))


def add_session(parser: argparse.ArgumentParser) -> None:
    """Add the argument for a recorded session."""
    parser.add_argument(
        "session",
        type=Path,
        nargs="?",
        default=FOLDER,
        metavar="DIR",
        help=f"session folder, folder of ranks or of traces, or a trace file {DEFAULT}",
    )
    add_jobs(parser)


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """Add the option for the number of reading processes."""
    parser.add_argument(
        "--jobs",
        type=positive_int,
        metavar="N",
        help="max processes that read a long file (default: one per core)",
    )


def positive_int(text: str) -> int:
    """Read a positive integer."""
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} must be a positive integer")
    return int(text)


def add_rank(parser: argparse._ActionsContainer) -> None:
    """Let the user choose a rank."""
    parser.add_argument("--rank", type=int, metavar="N", help="only this rank (default: all)")


def add_step(parser: argparse._ActionsContainer) -> None:
    """Let the user choose a step."""
    parser.add_argument(
        "--step", type=int, metavar="N", help="only this recorded step (default: all)"
    )


def add_step_kind(parser: argparse._ActionsContainer) -> None:
    """Let the user choose a kind of steps of inference."""
    parser.add_argument(
        "--step-kind",
        metavar="KIND",
        help="of inference: steps of this kind, prefill or decode (default: what most are)",
    )


def add_folder(parser: argparse._ActionsContainer) -> None:
    """Add the option for the folder of a new session."""
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=FOLDER,
        metavar="DIR",
        help=f"session folder to write {DEFAULT}",
    )
    parser.add_argument("--force", action="store_true", help="replace an existing session in DIR")


def add_format(parser: argparse.ArgumentParser, forms: Sequence[str]) -> None:
    """Add the option for the output format."""
    group = parser.add_argument_group("format")
    group.add_argument("--format", choices=forms, default="text", help=f"output format {DEFAULT}")
    group.add_argument(
        "--budget",
        type=int,
        metavar="BYTES",
        help="max JSON bytes; the answer says what was left out (default: no limit)",
    )


def print_answer(answer: Answer, options: argparse.Namespace) -> None:
    """Print an answer for a program; raises UsageError or OutputError."""
    from profiler_ext.exporters.json_output.bounds import answer_text

    write(answer_text(answer, options.budget))


def print_written(
    path: Path, format: str, notes: Sequence[str], options: argparse.Namespace
) -> None:
    """Print which file a command wrote, and its notes."""
    if options.format == "json":
        from profiler_ext.exporters.json_output.documents import Written

        print_answer(Written(path=str(path), format=format, notes=list(notes)), options)
        return
    print_line(str(path))
    for note in notes:
        print_message(note)


def add_roots(parser: argparse._ActionsContainer) -> None:
    """Add the option for folders from which source may be shown."""
    parser.add_argument(
        "--root",
        dest="roots",
        action="append",
        type=Path,
        default=[],
        metavar="DIR",
        help="also show source from this folder, besides the working folder and Python's library",
    )


def script_words(program: Sequence[str], example: str) -> list[str]:
    """Return the words after ``--`` without a leading ``python``; ``example`` shows the command."""
    words = list(program)
    if words and _PYTHON.fullmatch(Path(words[0]).name):
        del words[0]
    if not words:
        raise UsageError(f"name the script after --: {example} -- train.py")
    return words


def checked_program(words: Sequence[str], options: argparse.Namespace) -> Program:
    """Return the program of a script's words, once it, ``--step-on`` and the folder are checked."""
    from profiler_ext.run.program import Program
    from profiler_ext.run.request import Request, StepOn

    is_module = words[0] == "-m"
    program = Program(words[is_module], tuple(words[is_module + 1 :]), is_module)
    try:
        step_on = StepOn.parsed(options.step_on) if options.step_on else StepOn()
    except ValueError:
        raise UsageError(f"--step-on {options.step_on} is not understood; see run --help") from None
    Request(program, options.output, step_on=step_on).check()
    return program
