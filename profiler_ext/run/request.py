"""The options of ``profiler-ext run``, as on the command line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from profiler_ext.errors import UsageError
from profiler_ext.profiling import DEFAULT_RECORDED_STEPS, DEFAULT_SKIPPED_STEPS
from profiler_ext.python_lines.monitoring import python_without_monitoring
from profiler_ext.run.program import Program

_AMOUNT = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>ms|s|min|h)?")
_UNITS_S = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}
_FORWARD = "forward"


@dataclass(frozen=True, slots=True)
class Amount:
    """A part of a run: a number of steps, or a time."""

    steps: int | None  # ``None`` for a time
    seconds: float = 0.0

    @classmethod
    def parsed(cls, text: str) -> Amount:
        """Parse ``3`` as steps, and ``500ms``, ``5s``, ``2min`` or ``1h`` as a time."""
        match = _AMOUNT.fullmatch(text)
        if match is None or (match["unit"] is None and "." in text):
            raise ValueError(text)
        if match["unit"] is None:
            return cls(int(text))
        return cls(None, float(match["number"]) * _UNITS_S[match["unit"]])

    @property
    def is_nothing(self) -> bool:
        """Whether it is no step and no time."""
        return not self.steps and not self.seconds

    def __str__(self) -> str:
        """Return the command line's text."""
        return f"{self.seconds:g}s" if self.steps is None else str(self.steps)


SKIP, STEPS = Amount(DEFAULT_SKIPPED_STEPS), Amount(DEFAULT_RECORDED_STEPS)
"""The defaults."""


class EndedBy(Enum):
    """What ends a step."""

    FIRST = auto()
    OPTIMIZER = auto()
    FORWARD = auto()
    FUNCTION = auto()


@dataclass(frozen=True, slots=True)
class StepOn:
    """The option for what ends a step."""

    # The script's own profiler or an optimizer, the first to step; else the call that repeats
    by: EndedBy = EndedBy.FIRST
    name: str | None = None  # of the optimizer's or module's class, or the function
    module: str | None = None  # of the function

    @classmethod
    def parsed(cls, text: str) -> StepOn:
        """Parse ``AdamW``, ``forward[:GPT]``, ``package.module:function`` or ``:function``."""
        module, colon, name = text.partition(":")
        words = (*module.split("."), *name.split(".")) if module and colon else (name or text,)
        if not all(map(str.isidentifier, words)):
            raise ValueError(text)
        if module == _FORWARD:
            return cls(EndedBy.FORWARD, name or None)
        if colon:
            return cls(EndedBy.FUNCTION, name, module or "__main__")
        return cls(EndedBy.OPTIMIZER, text)

    @property
    def needs_monitoring(self) -> bool:
        """Whether it needs Python 3.12."""
        return self.by is EndedBy.FUNCTION or (self.by is EndedBy.FORWARD and self.name is not None)

    def __str__(self) -> str:
        """Return the command line's text."""
        if self.by is EndedBy.FUNCTION:
            return f"{'' if self.module == '__main__' else self.module}:{self.name}"
        if self.by is EndedBy.FORWARD:
            return _FORWARD if self.name is None else f"{_FORWARD}:{self.name}"
        return self.name or ""


@dataclass(frozen=True, slots=True)
class Repeats:
    """Which steps are recorded repeatedly, and which sessions are kept."""

    every: int | None = None  # steps between the first ones of recordings; ``None`` for no pause
    slow: float | None = None  # keep recordings with a step so many times slower than the median
    keep: int = 5  # the last sessions


@dataclass(frozen=True, slots=True)
class Request:
    """The options of a run."""

    program: Program
    folder: Path  # of the files; ranks have folders of their own in it
    skip: Amount = SKIP
    steps: Amount = STEPS
    step_on: StepOn = StepOn()
    force: bool = False  # replace an existing session
    recompile: bool = False  # graphs that a cache has without a record
    lines: bool = True  # watch which lines run
    shapes: bool = False  # record the shapes of eager ops' inputs
    memory: bool = False  # record what is allocated and freed, and who holds it
    values: bool = False  # compare what a step before the recording computes
    source: bool = True  # keep the source text
    stops: bool = False  # end the script when its recording is written
    repeats: Repeats | None = None

    def check(self) -> None:
        """Check that it can be done."""
        program = self.program
        if not (program.is_module or program.is_readable or program.holds_main):
            what = "a path to a Python file, or /dev/stdin for what standard input has"
            raise UsageError(f"there is no script {program.target}; give {what}")
        if self.steps.is_nothing:
            raise UsageError("--steps takes 1 or more, or a time, 5s")
        if self.step_on.needs_monitoring and (version := python_without_monitoring()) is not None:
            raise UsageError(
                f"--step-on {self.step_on} needs Python 3.12 or newer, and this is {version}; here "
                "an optimizer's class ends a step, or the outermost call of a model: forward"
            )
        if self.repeats is not None:
            self._check_repeats(self.repeats)

    def _check_repeats(self, repeats: Repeats) -> None:
        if repeats.keep < 1:
            raise UsageError("--keep takes 1 or more")
        if repeats.slow is not None and repeats.slow <= 1:
            raise UsageError("--slow takes a number above 1: 1.5 for half as long again")
        if repeats.every is not None and repeats.every < max(self.steps.steps or 1, 1):
            raise UsageError(f"--every takes {self.steps}, which --steps records, or more")
        if self.stops and repeats.slow is None:
            raise UsageError("--stop ends the script after the first session; leave --every out")
