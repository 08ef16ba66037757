"""A child of ``profiler-ext try``: the script with remedies patched in, its steps timed.

No profiler is on and nothing of a compile is observed, so that steps take what they take without
this package. Nothing waits for the device before the last timed step has ended.
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import msgspec

from profiler_ext import autostart
from profiler_ext.file_io import replacing
from profiler_ext.isolation.failures import failure_detail
from profiler_ext.isolation.user_state import isolated
from profiler_ext.records.stored import known
from profiler_ext.run.program import Program, prepare_program, run_program
from profiler_ext.run.request import Request, StepOn
from profiler_ext.trials import BY_NAME
from profiler_ext.trials.remedy import Patching, Site

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LOSSES = 10
"""The first losses are kept."""
_WINDOW = 5
_NEARLY = 0.03
"""Steps are steady when the medians of two windows in a row are so near to each other."""
_MAX_WARMUP = 60
_COUNTED_STEPS = 3
"""After so many steps a script has made what remedies patch, and called it."""
_LEAST_NS, _MOST_STEPS = 2_000_000_000, 20
"""Short steps are timed for this long, up to so many times the steps that are asked for."""
_RANKS_WARMUP = 20
"""Ranks stop at the same step, so they cannot each decide when theirs are steady."""


class Task(msgspec.Struct, kw_only=True):
    """What a child runs."""

    words: list[str]  # the script and its arguments
    is_module: bool
    remedies: list[str]
    step_on: str
    steps: int
    result: str  # file to write
    counts_only: bool = False  # what the remedies would patch; no step is timed
    memory: bool = False  # of a session to record: its memory, too
    session: str = ""  # folder to record a session into, in place of timing steps


class Patched(msgspec.Struct, kw_only=True):
    """What a remedy patched."""

    count: int
    sites: list[Site]
    reason: str


class Measured(msgspec.Struct, kw_only=True):
    """What a child measured."""

    took_ns: list[int] = []  # the timed steps
    on_device: bool = False  # by the device's clock
    is_steady: bool = False
    warmup_steps: int = 0
    startup_ns: int = 0  # from the script's start to the timed steps, less what those steps take
    peak_bytes: int | None = None
    reserved_bytes: int | None = None  # by the GPU's allocator, at most
    losses: list[float] = []
    loss_dtype: str = ""
    patched: dict[str, Patched] = {}
    steps_by: str = ""  # what ended the steps
    error: str | None = None

    @property
    def step_ns(self) -> int:
        """The median of the timed steps."""
        return round(statistics.median(self.took_ns))


class _Losses:
    """Keeps the first tensors that the script calls ``backward`` on."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._kept: list[Any] = []
        self._is_inside = False

    def watch(self) -> None:
        """Patch what a backward begins with."""
        for owner in (self._torch.Tensor, self._torch.autograd):
            self._watch(owner)

    def _watch(self, owner: Any) -> None:
        original = owner.backward

        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_inside or len(self._kept) >= _LOSSES:
                return original(tensors, *args, **kwargs)
            self._keep(tensors)
            self._is_inside = True
            try:
                return original(tensors, *args, **kwargs)
            finally:
                self._is_inside = False

        owner.backward = self._torch.compiler.disable(backward)

    def _keep(self, tensors: Any) -> None:
        loss = tensors if isinstance(tensors, self._torch.Tensor) else next(iter(tensors), None)
        if isinstance(loss, self._torch.Tensor) and loss.numel() == 1:
            self._kept.append(loss.detach().clone())

    @property
    def values(self) -> list[float]:
        """The losses; this waits for the device."""
        return [float(each) for each in self._kept]

    @property
    def dtype(self) -> str:
        """The type of the first."""
        return str(self._kept[0].dtype).removeprefix("torch.") if self._kept else ""


class _Steps:
    """Times steps once they are steady, and says when there are enough."""

    def __init__(self, count: int, began_ns: int, *, counts_only: bool = False) -> None:
        from profiler_ext.profiling.unrecorded_steps import Mark

        self._mark: Callable[[], Mark] = Mark.here
        self._count, self._began_ns, self._counts_only = count, began_ns, counts_only
        self._is_ranked = os.environ.get("WORLD_SIZE", "1") not in ("", "0", "1")
        self.restart()

    def restart(self) -> None:
        """Forget the steps so far."""
        self._marks = [self._mark()]
        self._took_ns: list[int] = []
        self.timed_from: int | None = None
        self.is_steady = False

    def end(self, may_train: Callable[[], bool]) -> bool:
        """End a step; return whether it was the last one to time.

        Args:
            may_train: whether these steps are calls before the training, as of an evaluation.
        """
        self._marks.append(self._mark())
        if self._counts_only:
            return len(self._marks) > _COUNTED_STEPS and not may_train()
        if self.timed_from is None:
            self._settle()
            self._decide(may_train)
            return False
        return self._are_enough(len(self._marks) - 1 - self.timed_from)

    def _are_enough(self, timed: int) -> bool:
        """Tell whether enough steps are timed; ranks count, as their clocks may differ."""
        if timed < self._count:
            return False
        first = self._marks[self.timed_from or 0]
        is_long = self._marks[-1].time_ns - first.time_ns >= _LEAST_NS
        return self._is_ranked or is_long or timed >= _MOST_STEPS * self._count

    def _settle(self) -> None:
        """Add the times of the steps that the device has finished."""
        for start, end in zip(
            self._marks[len(self._took_ns) :], self._marks[len(self._took_ns) + 1 :], strict=False
        ):
            took_ns = start.until_ns(end)
            if took_ns is None:
                return
            self._took_ns.append(took_ns)

    def _decide(self, may_train: Callable[[], bool]) -> None:
        ended = len(self._marks) - 1
        self.is_steady = _is_steady(self._took_ns)
        least = _RANKS_WARMUP if self._is_ranked else _MAX_WARMUP
        is_over = ended >= least or (self.is_steady and not self._is_ranked)
        if is_over and not may_train():
            self.timed_from = ended
            _forget_peak()

    def fill(self, measured: Measured) -> None:
        """State the times; the device has finished."""
        if self._counts_only:
            return
        self._settle()
        first = self.timed_from
        if first is None:  # the script has ended: its last steps are the best there are
            first = max(len(self._took_ns) - self._count, 2 * _WINDOW)
        timed = self._took_ns[first:]
        if not timed:
            return
        measured.took_ns, measured.is_steady, measured.warmup_steps = timed, self.is_steady, first
        measured.on_device = self._marks[-1].device is not None
        until_ns = self._marks[first].time_ns - self._began_ns
        measured.startup_ns = max(round(until_ns - first * statistics.median(timed)), 0)


def _is_steady(took_ns: list[int]) -> bool:
    if len(took_ns) < 2 * _WINDOW:
        return False
    before = statistics.median(took_ns[-2 * _WINDOW : -_WINDOW])
    return abs(statistics.median(took_ns[-_WINDOW:]) - before) <= _NEARLY * before


def _cuda_in_use() -> Any | None:
    cuda = sys.modules["torch"].cuda
    return cuda if cuda.is_initialized() else None


def _forget_peak() -> None:
    if (cuda := _cuda_in_use()) is not None:
        cuda.reset_peak_memory_stats()


def _peak_bytes() -> int:
    """Return the peak of the timed steps on the GPU, or of the process on the CPU."""
    if (cuda := _cuda_in_use()) is not None:
        return int(cuda.max_memory_allocated())
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _reserved_bytes() -> int | None:
    cuda = _cuda_in_use()
    return None if cuda is None else int(cuda.max_memory_reserved())


def _last_line(error: BaseException) -> str:
    """Return what Python prints last of an error, without the lines after its first."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class _Child:
    """One run of the script."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._process = os.getpid()
        self._began_ns = perf_counter_ns()
        self._patchings: dict[str, Patching] = {}
        self._steps: _Steps | None = None
        self._losses: _Losses | None = None
        self._ends: Any = None
        self._error: str | None = None
        self._is_written = False

    def run(self) -> int:
        """Run the script; returns its exit code."""
        task = self._task
        program = Program(task.words[0], tuple(task.words[1:]), task.is_module)
        autostart.on_torch_import(self._torch_imported)
        if task.session:
            return self._recorded(program)
        start = prepare_program(program)
        ending = run_program(functools.partial(self._noting_errors, start))
        if os.getpid() == self._process:
            self._write()
        return ending.code

    def _recorded(self, program: Program) -> int:
        """Record the script with the remedies patched in; what is printed goes to the log."""
        from profiler_ext.run.profiled_program import run

        step_on = StepOn.parsed(self._task.step_on) if self._task.step_on else StepOn()
        request = Request(
            program,
            Path(self._task.session),
            step_on=step_on,
            force=True,
            stops=True,
            memory=self._task.memory,
        )
        return run(request, lambda outcome: print(*outcome.remarks, sep="\n"), print).code

    def _noting_errors(self, start: Callable[[], object]) -> None:
        try:
            start()
        except SystemExit as stop:
            if stop.code and not self._is_written:
                self._error = f"it exited with {stop.code}"
            raise
        except BaseException as error:
            self._error = _last_line(error)
            raise

    def _torch_imported(self) -> None:
        """Patch, inside the import of torch."""
        try:
            with isolated():
                self._start()
        except Exception as error:  # the script would run to its end, untimed
            self._error = f"profiler-ext try failed: {failure_detail(error)}"
            self._write()
            raise SystemExit(1) from error

    def _start(self) -> None:
        from profiler_ext.trials.untraced_steps import UntracedStepEnds

        torch: Any = sys.modules["torch"]
        if not self._task.session:
            self._losses = _Losses(torch)
            self._losses.watch()
        for name in self._task.remedies:
            patching = Patching(torch, counts_only=self._task.counts_only)
            self._patchings[name] = patching
            if (apply := BY_NAME[name].apply) is not None:
                apply(patching)
        if self._task.session:
            return
        self._steps = _Steps(self._task.steps, self._began_ns, counts_only=self._task.counts_only)
        step_on = StepOn.parsed(self._task.step_on) if self._task.step_on else StepOn()
        self._ends = UntracedStepEnds(self._step_ended, step_on, self._restarted)
        self._ends.watch()

    def _restarted(self, _: bool) -> bool:
        if self._steps is not None:
            self._steps.restart()
        return True

    def _step_ended(self) -> bool:
        if self._is_written or self._steps is None or os.getpid() != self._process:
            return False
        if not self._steps.end(lambda: bool(self._ends.may_train)):
            return False
        from profiler_ext.torch_compat.default_store import all_ranks_end

        with isolated():
            self._write()
            return all_ranks_end()

    def _write(self) -> None:
        """Write what was measured, once."""
        if self._is_written:
            return
        self._is_written = True
        measured = Measured(error=self._error)
        if self._steps is not None and self._losses is not None:
            self._fill(measured, self._steps, self._losses)
        rank = os.environ.get("RANK", "")
        path = Path(f"{self._task.result}.{rank}" if rank else self._task.result)
        with replacing(path, durable=False) as file:
            file.write(msgspec.json.encode(measured))

    def _fill(self, measured: Measured, steps: _Steps, losses: _Losses) -> None:
        """State what was measured; a device that has failed says so here."""
        from profiler_ext.torch_compat.process import finish_device_work

        try:
            if _cuda_in_use() is not None:
                finish_device_work()
            steps.fill(measured)
            measured.peak_bytes, measured.reserved_bytes = _peak_bytes(), _reserved_bytes()
            measured.losses, measured.loss_dtype = losses.values, losses.dtype
        except Exception as error:  # as of a device that has failed
            measured.error = measured.error or failure_detail(error)
        measured.steps_by = self._ends.of or self._ends.source if self._ends is not None else ""
        measured.patched = {
            name: Patched(count=each.count, sites=list(each.sites), reason=each.reason)
            for name, each in self._patchings.items()
        }


def _end_with_parent() -> None:
    """End this process when its parent ends, also by SIGKILL: torchrun's ranks lead groups."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> int:
    """Run the task of the file that is named last on the command line."""
    _end_with_parent()
    task = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=known(Task))
    return _Child(task).run()


if __name__ == "__main__":
    sys.exit(main())
