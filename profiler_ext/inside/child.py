"""The child of ``profiler-ext inside``: records the script, then looks into its kernels.

The script runs unchanged until its steps are recorded. Only then, while its process is still there,
kernels are launched again alone, on arguments like those of their first launch.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from profiler_ext import autostart
from profiler_ext.errors import ProfilerExtError, UsageError
from profiler_ext.file_io import replacing
from profiler_ext.inside.selection import ChosenKernel
from profiler_ext.isolation.failures import failure_detail
from profiler_ext.isolation.guard import Guard
from profiler_ext.isolation.user_state import isolated, own_modules
from profiler_ext.records.inside import MeasuredKernel
from profiler_ext.records.stored import known
from profiler_ext.run.program import Program
from profiler_ext.run.request import Request, StepOn

if TYPE_CHECKING:
    from profiler_ext.inside.launches import FirstLaunches
    from profiler_ext.inside.source_lines import SourceLines


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
        self._observing = ExitStack()
        self._sources: SourceLines | None = None
        self._launches: FirstLaunches | None = None

    def run(self) -> int:
        """Run the script, look into its kernels, and write the result."""
        from profiler_ext.run.profiled_program import run

        task = self._task
        program = Program(task.words[0], tuple(task.words[1:]), task.is_module)
        step_on = StepOn.parsed(task.step_on) if task.step_on else StepOn()
        request = Request(program, Path(task.session), step_on=step_on, force=True, stops=True)
        autostart.on_torch_import(self._torch_imported)
        ending = run(request, lambda outcome: print(*outcome.remarks, sep="\n"), print)
        self._observing.close()
        with own_modules():
            result = self._result()
            with replacing(Path(task.result), durable=False) as file:
                file.write(msgspec.json.encode(result))
        return ending.code

    def _torch_imported(self) -> None:
        from profiler_ext.torch_compat.import_hooks import INDUCTOR, ImportWatcher

        watcher = ImportWatcher([INDUCTOR], lambda _: self._observe(), self._guard)
        self._observing.callback(watcher.leave)

    def _observe(self) -> None:
        """Observe what Inductor writes and what is launched, once Inductor is there."""
        from profiler_ext.inside.launches import FirstLaunches
        from profiler_ext.inside.source_lines import SourceLines
        from profiler_ext.torch_compat import patches, points

        self._sources, self._launches = SourceLines(self._guard), FirstLaunches()
        self._observing.enter_context(self._sources.observed())
        hooks = [(points.KERNEL_LAUNCHED, self._launches.observe)]
        self._observing.enter_context(patches.installed(hooks, self._guard))

    def _result(self) -> Result:
        try:
            with isolated():
                return self._measured()
        except ProfilerExtError as error:
            return Result(error=str(error))
        except Exception as error:
            return Result(error=failure_detail(error))

    def _measured(self) -> Result:
        from profiler_ext.inside.knocking_out import knock_out
        from profiler_ext.inside.selection import chosen_kernels
        from profiler_ext.sessions.session import load

        torch: Any = sys.modules.get("torch")
        if self._sources is None or self._launches is None:
            raise UsageError(_why_nothing(self._guard))
        if not torch.cuda.is_initialized():
            raise UsageError("the script ran nothing on a GPU, and kernels are timed there")
        task = self._task
        analysis = load(task.session).analysis
        chosen = chosen_kernels(analysis, self._sources.sources, task.query, task.most)
        device = torch.cuda.get_device_name()
        if not task.knocks_out:
            return Result(device=device, chosen=chosen)
        gc.collect()
        torch.cuda.empty_cache()
        until_s = time.monotonic() + task.limit_s
        kernels = knock_out(chosen, self._launches.by_text(), until_s, self._tell)
        return Result(kernels=kernels, device=device, chosen=chosen)

    def _tell(self, text: str) -> None:
        self._progress.write(f"profiler-ext: {text}\n")
        self._progress.flush()


def _why_nothing(guard: Guard) -> str:
    failures = guard.failures
    if failures:
        return f"its compiles could not be observed: {failures[0]}"
    return "the script compiled nothing with Inductor, so it has no generated kernels"


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
