"""Runs the script in children, one after the other, and compares what they measured."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from profiler_ext import autostart
from profiler_ext.comparison import significance
from profiler_ext.errors import UsageError
from profiler_ext.file_io import temporary_folder
from profiler_ext.records.stored import known
from profiler_ext.run.program import Program
from profiler_ext.trials.child import Measured, Task

VARIABLE = "PROFILER_EXT_TRY"
"""Set to 1 in each child: a script may leave out there what no timing needs."""
_GRACE_S = 10.0  # for the end of a child that has written its result
_POLL_S = 0.05
_ALPHA = 0.05
_ERROR_BY_QUARTILES = 0.93  # of the median of a normal distribution: sqrt(pi / 2) / 1.349
_NOT_COPIED = (".git", "__pycache__", "profile_out")
# Relative differences of losses: what products in a precision may differ by after ten steps
TOLERANCES = {"float64": 1e-7, "float32": 1e-4, "tf32": 1e-3, "float16": 1e-2, "bfloat16": 1.6e-2}


class StoppedError(Exception):
    """The trials end before they are complete; what was measured so far is kept."""


@dataclass(frozen=True, slots=True)
class Script:
    """What is run, and how."""

    program: Program
    launcher: tuple[str, ...] = ()  # options of torchrun, where it starts the ranks
    is_launched: bool = False  # by torchrun
    step_on: str = ""
    steps: int = 20
    timeout_s: float = 600.0
    copies: bool = False  # each child has a copy of the script's folder

    @property
    def words(self) -> list[str]:
        """The command, as the user gave it."""
        launcher = ["torchrun", *self.launcher] if self.is_launched else []
        module = ["-m"] if self.program.is_module else []
        return [*launcher, *module, self.program.target, *self.program.arguments]

    @property
    def path(self) -> Path | None:
        """The script's file."""
        return None if self.program.is_module else Path(self.program.target).absolute()

    def command(self, *words: str) -> list[str]:
        """Return the command that runs Python with some words, in each rank."""
        python = [sys.executable, *words]
        if not self.is_launched:
            return python
        return [sys.executable, "-m", "torch.distributed.run", *self.launcher, "--no-python",
                *python]  # fmt: skip


def parsed_launcher(words: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Split the words after ``torchrun`` into its options, and the script with its arguments."""
    from torch.distributed.run import get_args_parser

    options, _ = get_args_parser().parse_known_args(list(words))
    script = [options.training_script, *options.training_script_args]
    if options.no_python or options.module:
        raise UsageError("torchrun's --no-python and --module are not supported; name a script")
    return tuple(words[: len(words) - len(script)]), script


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a child runs."""

    folder: Path
    original: Path  # what that is a copy of, or the same
    target: str  # the script's name from there


@dataclass(slots=True)
class Children:
    """Runs the script in child processes."""

    script: Script
    logs: Path  # folder of what they print
    tell: Callable[[str], None]
    expected: int = 0  # how many there will be at most
    count: int = 0
    until_s: float = math.inf  # by the monotonic clock
    _took_s: float = 0.0  # the last child, to its end

    def measure(self, remedies: Sequence[str]) -> Measured:
        """Run the script with remedies, and return what it measured, or its error.

        Raises:
            StoppedError: There is not enough time left for it.
        """
        began_s = time.monotonic()
        name = "+".join(remedies) or "as it is"
        measured, error = self._child(name, remedies)
        if not measured.took_ns and measured.error is None:
            measured.error = error or "it ended before its steps were steady; give it more steps"
        self._say(name, measured, time.monotonic() - began_s)
        return measured

    def applicable(self, remedies: Sequence[str]) -> Measured:
        """Run the script for a few steps, and return what each of the remedies would patch.

        Raises:
            StoppedError: There is not enough time left for it.
        """
        began_s = time.monotonic()
        measured, error = self._child("counted", remedies, counts_only=True)
        measured.error = measured.error or (None if measured.patched else error)
        count = sum(each.count > 0 for each in measured.patched.values())
        took = f"({time.monotonic() - began_s:.0f} s)"
        answer = measured.error or f"{count} of {len(remedies)} remedies have something to apply to"
        self.tell(f"{self._number} what the remedies would patch: {answer} {took}")
        return measured

    def record(
        self, output: Path, remedies: Sequence[str] = (), *, memory: bool = False
    ) -> str | None:
        """Record the script with remedies into a session; returns the error, if it failed.

        Raises:
            StoppedError: There is not enough time left for it.
        """
        began_s = time.monotonic()
        name = f"recorded {'+'.join(remedies)}".rstrip()
        _, error = self._child(name, remedies, session=str(output.absolute()), memory=memory)
        self.tell(f"{self._number} {name}: {error or output} ({time.monotonic() - began_s:.0f} s)")
        return error

    def _child(
        self,
        name: str,
        remedies: Sequence[str],
        *,
        counts_only: bool = False,
        session: str = "",
        memory: bool = False,
    ) -> tuple[Measured, str | None]:
        """Run a child; returns what it measured, and why it failed, if it did."""
        if time.monotonic() + self._took_s > self.until_s:
            raise StoppedError("the time of --limit is over")
        self.count += 1
        began_s = time.monotonic()
        with temporary_folder("no child can be run") as folder:
            place = self._place(folder)
            program = self.script.program
            task = Task(
                words=[place.target, *program.arguments],
                is_module=program.is_module,
                remedies=list(remedies),
                step_on=self.script.step_on,
                steps=self.script.steps,
                result=str(folder / "result"),
                counts_only=counts_only,
                session=session,
                memory=memory,
            )
            path = folder / "task.json"
            path.write_bytes(msgspec.json.encode(task))
            log = self.logs / f"{self.count:02}_{name.replace(' ', '_')}.log"
            words = self.script.command("-m", "profiler_ext.trials.child", str(path))
            error = self._run(words, place.folder, log, None if session else folder)
            measured = _read(folder) or Measured(error=error or "it ended without a step")
            _map_sites(measured, place)
        self._took_s = time.monotonic() - began_s
        return measured, error

    @property
    def _number(self) -> str:
        return f"[{self.count}/{max(self.expected, self.count)}]"

    def _place(self, folder: Path) -> _Place:
        """Return where a child runs, in a copy of the folder if that is asked for."""
        cwd, path, target = Path.cwd(), self.script.path, self.script.program.target
        if not self.script.copies or path is None:
            return _Place(cwd, cwd, target)
        original = cwd if path.is_relative_to(cwd) else path.parent
        copy = folder / "copy"
        ignored = shutil.ignore_patterns(*_NOT_COPIED)
        shutil.copytree(original, copy, symlinks=True, ignore=ignored)
        return _Place(copy, original, str(path.relative_to(original)))

    def _run(self, words: list[str], cwd: Path, log: Path, results: Path | None) -> str | None:
        """Run a child to its end; returns why it failed, if it did."""
        # Capture in every process, as that variable asks for, would be timed too
        environment = {**os.environ, VARIABLE: "1", autostart.VARIABLE: "0"}
        with log.open("wb") as printed:
            child = subprocess.Popen(
                words,
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                left_s = self.until_s - time.monotonic()
                is_late = wait_for_result(child, min(self.script.timeout_s, left_s), results)
            finally:  # also when a signal ends the command
                end_group(child)
        if is_late and left_s < self.script.timeout_s:
            raise StoppedError("the time of --limit is over")
        if is_late:
            return f"it was ended after {self.script.timeout_s:g} s (--timeout)"
        if child.returncode < 0:
            return f"it was ended by {signal.Signals(-child.returncode).name}"
        return _last_line(log) if child.returncode else None

    def _say(self, name: str, measured: Measured, took_s: float) -> None:
        number = f"{self._number} {name}"
        if measured.error is not None and not measured.took_ns:
            self.tell(f"{number}: {measured.error} ({took_s:.0f} s)")
            return
        steadiness = "" if measured.is_steady else ", not steady"
        self.tell(
            f"{number}: {measured.step_ns / 1e6:.2f} ms a step, {len(measured.took_ns)} steps "
            f"after {measured.warmup_steps}{steadiness} ({took_s:.0f} s)"
        )


def wait_for_result(child: subprocess.Popen[bytes], timeout_s: float, results: Path | None) -> bool:
    """Wait for the end of a child, or until it has written its result; tells if it is late."""
    began_s = time.monotonic()
    written_s: float | None = None
    while True:
        with suppress(subprocess.TimeoutExpired):
            child.wait(_POLL_S)
            return False
        now = time.monotonic()
        if now - began_s > timeout_s:
            return written_s is None
        if written_s is None and results is not None and any(results.glob("result*")):
            written_s = now
        if written_s is not None and now - written_s > _GRACE_S:
            return False


def end_group(child: subprocess.Popen[bytes]) -> None:
    """End what is left of a child: it leads a group of its own, with its workers."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _read(folder: Path) -> Measured | None:
    """Return what the ranks measured, as one: the slowest of each step, the most memory."""
    ranks = sorted(folder.glob("result*"), key=lambda path: int(path.suffix[1:] or 0))
    if not ranks:
        return None
    all_ranks = [msgspec.json.decode(each.read_bytes(), type=known(Measured)) for each in ranks]
    first = all_ranks[0]
    first.error = next((each.error for each in all_ranks if each.error is not None), None)
    if len({len(each.took_ns) for each in all_ranks}) == 1:
        first.took_ns = [max(each) for each in zip(*(of.took_ns for of in all_ranks), strict=True)]
    else:
        first.took_ns = []
        first.error = first.error or "its ranks ended different numbers of steps"
    peaks = [each.peak_bytes for each in all_ranks if each.peak_bytes is not None]
    first.peak_bytes = max(peaks, default=None)
    reserved = [each.reserved_bytes for each in all_ranks if each.reserved_bytes is not None]
    first.reserved_bytes = max(reserved, default=None)
    return first


def _map_sites(measured: Measured, place: _Place) -> None:
    """Name the user's own files where a child ran a copy of them."""
    folder = Path(os.path.realpath(place.folder))
    for patched in measured.patched.values():
        patched.sites = [
            msgspec.structs.replace(
                each, file=str(place.original / Path(each.file).relative_to(folder))
            )
            if Path(each.file).is_relative_to(folder)
            else each
            for each in patched.sites
        ]


def _last_line(log: Path) -> str:
    lines = log.read_bytes().decode("utf-8", "replace").splitlines()
    return next((each.strip() for each in reversed(lines) if each.strip()), "it failed")[:300]


@dataclass(slots=True)
class Side:
    """Children of one set of remedies."""

    remedies: tuple[str, ...]
    runs: list[Measured] = field(default_factory=list)

    @property
    def step_ns(self) -> float:
        """The geometric mean of the medians."""
        return math.exp(float(np.mean(self.logarithms)))

    @property
    def logarithms(self) -> list[float]:
        """The logarithm of each median: children vary by a part of what they take."""
        return [math.log(each.step_ns) for each in self.runs]

    @property
    def startup_ns(self) -> int:
        """The mean time before steps were steady."""
        return round(float(np.mean([each.startup_ns for each in self.runs])))

    @property
    def peak_bytes(self) -> int | None:
        """The most memory."""
        return max((each.peak_bytes for each in self.runs if each.peak_bytes), default=None)

    @property
    def reserved_bytes(self) -> int | None:
        """The most memory that the GPU's allocator reserved."""
        known = (each.reserved_bytes for each in self.runs if each.reserved_bytes)
        return max(known, default=None)


@dataclass(frozen=True, slots=True)
class Gain:
    """What is saved of a step, as a part of it, with its confidence interval.

    With one child on a side there is no interval.
    """

    value: float
    low: float | None = None
    high: float | None = None


def gain(base: Side, head: Side, looks: int) -> Gain:
    """Compare two sides by Welch's interval of the ratio of their step times.

    Each child is one value, the logarithm of the median of its steps. Children are run until the
    interval decides, so it is looked at several times. Each look may be wrong in 5% over their
    number (Bonferroni): all intervals hold together with 95%. The sides may vary differently, as
    they do; few children can agree by chance, so a side deviates by what ``diff`` assumes at least,
    and by the error of a median of its own steps.

    Args:
        base: without.
        head: with.
        looks: how often an interval is looked at, at most.
    """
    saved = 1 - head.step_ns / base.step_ns
    if min(len(base.runs), len(head.runs)) < 2:
        return Gain(saved)
    variances = [_variance(side) / len(side.runs) for side in (base, head)]
    parts = (
        variance**2 / (len(side.runs) - 1)
        for variance, side in zip(variances, (base, head), strict=True)
    )
    degrees_of_freedom = round(sum(variances) ** 2 / sum(parts), 2)
    reach = significance.quantile(_ALPHA / looks, degrees_of_freedom) * sum(variances) ** 0.5
    ratio = head.step_ns / base.step_ns
    return Gain(saved, 1 - ratio * math.exp(reach), 1 - ratio * math.exp(-reach))


def _variance(side: Side) -> float:
    """Return the variance of the logarithms of children's medians."""
    by_steps = min(_median_error(each.took_ns) for each in side.runs)
    least = max(significance.MIN_RUN_DEVIATION, by_steps)
    return max(float(np.var(side.logarithms, ddof=1)), least**2)


def _median_error(took_ns: Sequence[int]) -> float:
    """Return the standard error of a median of steps, as a part of it; outliers do not count."""
    low, middle, high = np.percentile(took_ns, (25, 50, 75))
    return float(_ERROR_BY_QUARTILES * (high - low) / middle / len(took_ns) ** 0.5)


def loss_difference(base: Side, head: Side, precision: str) -> tuple[str, float | None]:
    """Compare the first losses of two sides, in words and as the largest relative difference.

    Where two runs of one side differ, as without a seed, nothing is known of the other.
    """
    runs = [*base.runs, *head.runs]
    if not all(each.losses for each in runs):
        return "unknown", None
    if any(_differs(each, base.runs[0]) for each in base.runs[1:]):
        noise = max(_difference(each.losses, base.runs[0].losses) for each in base.runs[1:])
        if noise > TOLERANCES["float32"]:
            return "unknown", None
    largest = max(_difference(base.runs[0].losses, each.losses) for each in head.runs)
    if not any(_differs(base.runs[0], each) for each in head.runs):
        return "identical", 0.0
    dtype = base.runs[0].loss_dtype
    allowed = max(TOLERANCES.get(precision, 0.0), TOLERANCES.get(dtype, 0.0))
    return "within tolerance" if largest <= allowed else "different", largest


def _differs(first: Measured, second: Measured) -> bool:
    return list(map(repr, first.losses)) != list(map(repr, second.losses))


def _difference(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the largest relative difference; infinite where one is no number, or is missing."""
    if len(first) != len(second):
        return math.inf
    pairs = zip(first, second, strict=True)
    return max((_relative(one, other) for one, other in pairs), default=0.0)


def _relative(one: float, other: float) -> float:
    if repr(one) == repr(other):
        return 0.0
    whole = max(abs(one), abs(other))
    difference = abs(one - other) / whole if whole else 0.0
    return difference if math.isfinite(difference) else math.inf
