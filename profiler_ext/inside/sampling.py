"""The child of ``profiler-ext inside`` that samples: the script as it is, while nothing records it.

It runs with the caches that the recording child has filled, so its kernels are the same. Nothing of
a compile is observed and no profiler is on: after a recording of Kineto's, CUPTI would know no
kernel.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import msgspec

from profiler_ext import autostart
from profiler_ext.errors import ProfilerExtError
from profiler_ext.file_io import replacing
from profiler_ext.inside.selection import ChosenKernel
from profiler_ext.isolation.failures import failure_detail
from profiler_ext.isolation.user_state import isolated
from profiler_ext.records.inside import MeasuredKernel
from profiler_ext.records.stored import known
from profiler_ext.run.program import Program, prepare_program, run_program
from profiler_ext.run.request import StepOn

if TYPE_CHECKING:
    from profiler_ext.inside.pc_sampling import PcSampler, Samples
    from profiler_ext.inside.sampled import SampledBinary

_STEPS = 20
"""So many steps are sampled."""
_LEAST_STEPS = 5
"""Where CUPTI ends it before, so many suffice."""
_WINDOW, _NEARLY, _MOST_WARM_UP = 5, 0.1, 60
"""Steps are steady when the medians of two windows in a row are so near; after so many, anyway."""


class SamplingTask(msgspec.Struct, kw_only=True):
    """What a child samples."""

    words: list[str]  # the script and its arguments
    is_module: bool
    step_on: str
    kernels: list[ChosenKernel]
    binaries: str  # folder of Triton's cache
    result: str  # file to write


class SamplingResult(msgspec.Struct, kw_only=True):
    """What a child sampled, or why not."""

    kernels: list[MeasuredKernel] = []
    error: str = ""
    notes: list[str] = []


class _Child:
    """One run of the script."""

    def __init__(self, task: SamplingTask) -> None:
        self._task = task
        self._sampler: PcSampler | None = None
        self._ends: Any = None
        self._began_ns = [perf_counter_ns()]
        self._sampled = 0  # steps
        self._notes: list[str] = []
        self._is_written = False

    def run(self) -> int:
        """Run the script, and write what was sampled."""
        task = self._task
        program = Program(task.words[0], tuple(task.words[1:]), task.is_module)
        autostart.on_torch_import(self._torch_imported)
        ending = run_program(prepare_program(program))
        self._write("the script ended before its steps were sampled; give it more steps")
        return ending.code

    def _torch_imported(self) -> None:
        from profiler_ext.trials.untraced_steps import UntracedStepEnds

        task = self._task
        step_on = StepOn.parsed(task.step_on) if task.step_on else StepOn()
        self._ends = UntracedStepEnds(self._step_ended, step_on, self._restarted)
        self._ends.watch()

    def _restarted(self, _: bool) -> bool:
        if self._sampler is None:
            self._began_ns = [perf_counter_ns()]
        return self._sampler is None

    def _step_ended(self) -> bool:
        """End a step; return whether the script is to end."""
        if self._is_written:
            return False
        with isolated():
            try:
                return self._is_enough()
            except Exception as error:
                self._write(_said(error))
                return True

    def _is_enough(self) -> bool:
        from profiler_ext.inside.pc_sampling import PERIOD_LOG2, BufferFullError, SamplingError

        if self._sampler is None:
            self._began_ns.append(perf_counter_ns())
            if _is_steady(self._began_ns) and not self._ends.may_train:
                self._sample(PERIOD_LOG2)
            return False
        self._sampled += 1
        try:
            if self._sampled < _STEPS:
                self._sampler.drain()
                return False
            self._sampler.__exit__()
        except BufferFullError:  # a long step: half as many samples of each
            self._sample(self._sampler.period_log2 + 1)
            return False
        except SamplingError as error:  # CUPTI's, now and then: the steps before are there
            if self._sampled <= _LEAST_STEPS:
                raise
            self._notes.append(f"{self._sampled - 1} of {_STEPS} steps are sampled: {error}")
        self._write()
        return True

    def _sample(self, period_log2: int) -> None:
        """Begin to sample, from the first step."""
        from profiler_ext.inside.pc_sampling import PcSampler

        self._sampled, self._sampler = 0, PcSampler(period_log2)
        self._sampler.__enter__()

    def _write(self, error: str = "") -> None:
        """Write what was sampled, once."""
        if self._is_written:
            return
        self._is_written = True
        result = SamplingResult(error=error)
        if not error and self._sampler is not None:
            result = sampled_result(self._task, self._sampler.samples())
            result.notes = [*self._notes, *result.notes]
        with replacing(Path(self._task.result), durable=False) as file:
            file.write(msgspec.json.encode(result))


def sampled_result(task: SamplingTask, samples: Samples) -> SamplingResult:
    """Return the times of the lines of kernels, with the line tables of what ran."""
    from profiler_ext.inside.pc_sampling import PERIOD_LOG2
    from profiler_ext.inside.sampled import sampled_kernels

    names = {kernel.kernel for kernel in task.kernels}
    notes = []
    if samples.dropped:
        notes.append(f"{samples.dropped:,} of {samples.total:,} samples were dropped by the device")
    if samples.unknown:
        notes.append(f"{samples.unknown:,} of {samples.total:,} samples are of unknown kernels")
    if samples.period_cycles > 1 << PERIOD_LOG2:
        notes.append(
            f"a sample every {samples.period_cycles:,} cycles, not {1 << PERIOD_LOG2:,}: a step "
            "has more than the device keeps. A line's share may be some points off"
        )
    binaries = list(_binaries(samples, names, Path(task.binaries)))
    return SamplingResult(kernels=sampled_kernels(task.kernels, binaries), notes=notes)


def _binaries(samples: Samples, names: Collection[str], root: Path) -> Iterator[SampledBinary]:
    """Yield what was sampled of kernels that Triton's cache has."""
    from dataclasses import replace

    from profiler_ext.inside.line_table import LineTable, read_folder
    from profiler_ext.inside.sampled import SampledBinary

    folders = _compiled(names, root)
    for function in samples.functions:
        if function.name not in names or (folder := folders.get(function.cubin_crc)) is None:
            continue
        try:
            table = read_folder(folder, function.name, root)
        except Exception as error:  # Triton's assembler raises errors of its own
            table = replace(LineTable(function.name, 0, ()), gap=_said(error))
        text = table.file.read_text() if table.file is not None and table.file.is_file() else ""
        yield SampledBinary(function, table, text)


def _compiled(names: Iterable[str], root: Path) -> dict[int, Path]:
    """Return the folders of Triton's cache, by the number of the binary in each.

    Inductor puts a binary without its PTX next to the whole one, for its own launcher.
    """
    from profiler_ext.inside.pc_sampling import Cupti

    cupti = Cupti()
    found = [file for name in names for file in root.rglob(f"{name}.cubin")]
    found.sort(key=lambda file: file.with_suffix(".ptx").is_file())  # the last one counts
    return {cupti.crc(file.read_bytes()): file.parent for file in found}


def _is_steady(began_ns: list[int]) -> bool:
    took = [end - begin for begin, end in pairwise(began_ns)]
    if len(took) < 2 * _WINDOW or len(took) >= _MOST_WARM_UP:
        return len(took) >= _MOST_WARM_UP
    before = statistics.median(took[-2 * _WINDOW : -_WINDOW])
    return abs(statistics.median(took[-_WINDOW:]) - before) <= _NEARLY * before


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, ProfilerExtError) else failure_detail(error)


def main() -> int:
    """Run the task of the file that is named last on the command line."""
    task = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=known(SamplingTask))
    return _Child(task).run()


if __name__ == "__main__":
    sys.exit(main())
