"""The child of ``profiler-ext inside``: records the script, then looks into its kernels.

The script runs unchanged until its steps are recorded. Only then, while its process is still there,
kernels are launched again alone, on arguments like those of their first launch.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, TextIO

import msgspec

from profiler_ext import autostart
from profiler_ext.errors import ProfilerExtError
from profiler_ext.file_io import replacing
from profiler_ext.inside.observing import KernelObservation
from profiler_ext.inside.selection import ChosenKernel
from profiler_ext.isolation.failures import failure_detail
from profiler_ext.isolation.guard import Guard
from profiler_ext.isolation.user_state import isolated, own_modules
from profiler_ext.records.inside import MeasuredKernel
from profiler_ext.records.stored import known
from profiler_ext.run.program import Program
from profiler_ext.run.request import Request, StepOn


class Task(msgspec.Struct, kw_only=True):
    """What a child runs."""

    words: list[str]  # the script and its arguments
    is_module: bool
    query: str  # the kernel, or the line
    most: int  # kernels
    limit_s: float  # for looking into them
    knocks_out: bool = True  # measure them by knock-out
    step_on: str
    session: str  # folder to record into
    result: str  # file to write


class Result(msgspec.Struct, kw_only=True):
    """What a child measured, or why not."""

    kernels: list[MeasuredKernel] = []
    error: str = ""
    device: str = ""
    chosen: list[ChosenKernel] = []


class _Child:
    """One run of the script."""

    def __init__(self, task: Task, progress: TextIO) -> None:
        self._task, self._progress = task, progress
        self._guard = Guard()
        self._observation = KernelObservation(self._guard)

    def run(self) -> int:
        """Run the script, look into its kernels, and write the result."""
        from profiler_ext.run.profiled_program import run

        task = self._task
        program = Program(task.words[0], tuple(task.words[1:]), task.is_module)
        step_on = StepOn.parsed(task.step_on) if task.step_on else StepOn()
        request = Request(program, Path(task.session), step_on=step_on, force=True, stops=True)
        autostart.on_torch_import(self._observation.begin)
        ending = run(request, lambda outcome: print(*outcome.remarks, sep="\n"), print)
        self._observation.end()
        with own_modules():
            result = self._result()
            with replacing(Path(task.result), durable=False) as file:
                file.write(msgspec.json.encode(result))
        return ending.code

    def _result(self) -> Result:
        try:
            with isolated():
                return self._measured()
        except ProfilerExtError as error:
            return Result(error=str(error))
        except Exception as error:
            return Result(error=failure_detail(error))

    def _measured(self) -> Result:
        from profiler_ext.sessions.session import load

        torch: Any = sys.modules.get("torch")
        task = self._task
        analysis = load(task.session).analysis
        chosen = self._observation.chosen(analysis, task.query, task.most)
        device = torch.cuda.get_device_name()
        if not task.knocks_out:
            return Result(device=device, chosen=chosen)
        kernels = self._observation.knocked_out(chosen, task.limit_s, self._tell)
        return Result(kernels=kernels, device=device, chosen=chosen)

    def _tell(self, text: str) -> None:
        self._progress.write(f"profiler-ext: {text}\n")
        self._progress.flush()


def main() -> int:
    """Run the task of the file that is named last on the command line.

    What the script prints goes to standard output; progress to standard error.
    """
    progress = os.fdopen(os.dup(2), "w")
    os.dup2(1, 2)
    task = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=known(Task))
    return _Child(task, progress).run()


if __name__ == "__main__":
    sys.exit(main())
