"""``profiler-ext inside``: measures which of the fused lines takes a kernel's time."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_ext.cli.common import (
    DEFAULT,
    Parser,
    add_folder,
    add_format,
    checked_program,
    positive_int,
    print_answer,
    print_line,
    print_message,
    script_words,
)
from profiler_ext.errors import UsageError
from profiler_ext.run.program import Program

if TYPE_CHECKING:
    from profiler_ext.exporters.json_output.documents import InsideAnswer
    from profiler_ext.inside.child import Result, Task
    from profiler_ext.inside.sampling import SamplingTask

HELP = "measure which fused line takes a kernel's time"

_MOST, _LIMIT_S, _TIMEOUT_S = 10, 120.0, 1800.0
_ROUTES = {"knock-out": (True, False), "samples": (False, True), "both": (True, True)}
"""Whether a route measures by knock-out, and by samples."""
_WIDTH = 120


def add_options(parser: Parser) -> None:
    """Add the command's options."""
    parser.usage = "profiler-ext inside [OPTION ...] [NAME] -- SCRIPT [ARGUMENT ...]"
    parser.description = (
        "Run an unmodified script in a child process with an empty compile cache, record it, and "
        "measure what the lines of a generated kernel take: launched alone, whole and with the "
        "work of each line taken out, or by samples of the program counter in the step. "
        "The measured shares replace the cost model's in the session's reports."
    )
    parser.takes_program = True
    _add_what_to_measure(parser)
    parser.add_argument(
        "--kernels", type=positive_int, default=_MOST, metavar="N",
        help=f"kernels at most, those that take most time {DEFAULT}",
    )  # fmt: skip
    parser.add_argument(
        "--limit", type=float, default=_LIMIT_S, metavar="S",
        help=f"seconds for them, after the script {DEFAULT}",
    )  # fmt: skip
    parser.add_argument(
        "--timeout", type=float, default=_TIMEOUT_S, metavar="S",
        help=f"seconds after which the child is ended {DEFAULT}",
    )  # fmt: skip
    parser.add_argument(
        "--step-on", default="", metavar="WHAT",
        help="what ends a step, as of `profiler-ext run` (default: as there)",
    )  # fmt: skip
    add_folder(parser)
    add_format(parser, ("text", "json"))
    parser.show_examples(
        ("the ten kernels that take most time", "profiler-ext inside -- train.py"),
        ("the kernels of a line", "profiler-ext inside gpt.py:48 -- train.py --lr 3e-4"),
        ("one kernel", "profiler-ext inside triton_per_fused_add_native_layer_norm_2 -- train.py"),
    )
    parser.set_defaults(command=_inside, program=[])


def _add_what_to_measure(parser: Parser) -> None:
    parser.add_argument(
        "name", metavar="NAME", nargs="?", default="",
        help="a kernel; FILE:LINE or a module, for all kernels that compute it (default: the "
        "kernels that take most time)",
    )  # fmt: skip
    parser.add_argument(
        "--route", choices=tuple(_ROUTES), default="knock-out",
        help="knock-out launches each kernel alone without a line; samples takes the program "
        f"counter in the step, which the driver may not allow {DEFAULT}",
    )  # fmt: skip


def _inside(options: argparse.Namespace) -> int:
    from profiler_ext.exporters.views.inside import inside_lines, summary

    program = _program(options)
    began_ns = time.monotonic_ns()
    result, notes = _measured(options, program)
    answer = _kept(options, program, result, notes, time.monotonic_ns() - began_ns)
    if options.format == "json":
        print_answer(answer, options)
        return 0
    width = min(shutil.get_terminal_size().columns, _WIDTH)
    for line in inside_lines(answer, width):
        print_line(line)
    print_line("")
    print_line(summary(answer.kernels))
    for note in answer.notes:
        print_line(note)
    print_line(f"written to {options.output}: inside.json, inside.log (what the script printed)")
    return 0


def _program(options: argparse.Namespace) -> Program:
    """Read the words after ``--``, and check the options."""
    words = script_words(options.program, f"profiler-ext inside {options.name}".rstrip())
    if Path(words[0]).name == "torchrun":
        raise UsageError("inside measures one process; give the script itself, without torchrun")
    return checked_program(words, options)


def _measured(options: argparse.Namespace, program: Program) -> tuple[Result, list[str]]:
    """Run the children; a session that one recorded is kept where the folder has none."""
    import msgspec

    from profiler_ext.exporters.formats import FILE_NAME as SESSION
    from profiler_ext.file_io import temporary_folder
    from profiler_ext.inside.child import Result, Task
    from profiler_ext.records.stored import known

    options.output.mkdir(parents=True, exist_ok=True)
    log = options.output / "inside.log"
    knocks_out, samples = _ROUTES[options.route]
    with temporary_folder("no child can be run") as folder:
        task = Task(
            words=[program.target, *program.arguments],
            is_module=program.is_module,
            query=options.name,
            most=options.kernels,
            limit_s=options.limit,
            knocks_out=knocks_out,
            step_on=options.step_on,
            session=str(folder / "session"),
            result=str(folder / "result"),
        )
        print_message(f"records {' '.join(task.words)} with an empty compile cache")
        path = run_child("profiler_ext.inside.child", task, folder, log, options.timeout)
        result = msgspec.json.decode(path.read_bytes(), type=known(Result))
        if result.error:
            raise UsageError(f"{result.error}; what the script printed is in {log}")
        notes = _sampled(options, task, result, folder) if samples else []
        if options.force or not (options.output / SESSION).exists():
            _move(folder / "session", options.output)
            return result, notes
        return result, [*notes, *_unknown_graphs(result, options.output)]


def _sampled(
    options: argparse.Namespace, recorded: Task, result: Result, folder: Path
) -> list[str]:
    """Run the script again to sample its kernels; returns what is to be noted."""
    import msgspec

    from profiler_ext.inside.sampling import SamplingResult, SamplingTask
    from profiler_ext.records.stored import known

    (folder / "samples").mkdir()
    task = SamplingTask(
        words=recorded.words,
        is_module=recorded.is_module,
        step_on=recorded.step_on,
        kernels=result.chosen,
        binaries=str(folder / "triton"),
        result=str(folder / "samples" / "result"),
    )
    print_message("runs it again, to sample the program counter")
    log = options.output / "inside_samples.log"
    path = run_child("profiler_ext.inside.sampling", task, folder, log, options.timeout)
    sampled = msgspec.json.decode(path.read_bytes(), type=known(SamplingResult))
    if sampled.error and not result.kernels:
        raise UsageError(f"{sampled.error}; what the script printed is in {log}")
    result.kernels += sampled.kernels
    return [f"not sampled: {sampled.error}"] if sampled.error else sampled.notes


def run_child(
    module: str, task: Task | SamplingTask, folder: Path, log: Path, timeout_s: float
) -> Path:
    """Run a child to its end, and return its result's file.

    Raises:
        UsageError: It wrote none.
    """
    import msgspec

    from profiler_ext import autostart
    from profiler_ext.trials.measuring import end_group, wait_for_result

    path = folder / "task.json"
    path.write_bytes(msgspec.json.encode(task))
    environment = {
        **os.environ,
        autostart.VARIABLE: "0",
        # What a cache answers is not generated, and then no line's node is seen
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }
    with log.open("wb") as printed:
        child = subprocess.Popen(
            [sys.executable, "-m", module, str(path)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            start_new_session=True,
        )
        try:
            is_late = wait_for_result(child, timeout_s, Path(task.result).parent)
        finally:  # also when a signal ends the command
            end_group(child)
    if Path(task.result).is_file():
        return Path(task.result)
    late = f"it was ended after {timeout_s:g} s (--timeout)"
    error = late if is_late else f"it exited with {child.returncode}"
    raise UsageError(f"the script ended before it was measured: {error}; see {log}")


def _move(session: Path, folder: Path) -> None:
    for each in session.iterdir():
        target = folder / each.name
        if target.is_dir():
            shutil.rmtree(target)
        shutil.move(each, target)


def _unknown_graphs(result: Result, folder: Path) -> list[str]:
    """Say which kernels are of graphs that the session in the folder does not have."""
    from profiler_ext.sessions.session import load

    known = {each.record.digest for each in load(folder).recording.graphs}
    lost = [
        each.kernel
        for each in result.kernels
        if each.sites and known.isdisjoint(site.graph for site in each.sites)
    ]
    if not lost:
        return []
    return [
        f"{len(lost)} kernels are of graphs that the session in {folder} does not have: its "
        "program, its shapes or its torch were others; --force records it again"
    ]


def _kept(
    options: argparse.Namespace,
    program: Program,
    result: Result,
    notes: Sequence[str],
    duration_ns: int,
) -> InsideAnswer:
    """Write what was measured next to the session, with what was measured of it before."""
    import msgspec

    from profiler_ext.exporters.json_output.documents import InsideAnswer
    from profiler_ext.exporters.views.inside import FILE_NAME, inside_of
    from profiler_ext.file_io import replacing

    module = ["-m"] if program.is_module else []
    answer = InsideAnswer(
        command=[*module, program.target, *program.arguments],
        query=options.name,
        device=result.device,
        duration_ns=duration_ns,
        kernels=result.kernels,
        notes=list(notes),
    )
    before = None if options.force else inside_of(options.output)
    again = {(each.text, each.route) for each in answer.kernels}
    kept = before.kernels if before else []
    others = [each for each in kept if (each.text, each.route) not in again]
    whole = msgspec.structs.replace(answer, kernels=[*answer.kernels, *others])
    with replacing(options.output / FILE_NAME) as file:
        file.write(msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n")
    return answer
