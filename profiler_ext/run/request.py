"""What ``profiler-ext run`` can be asked for, as a command line says it."""

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
    """How much of a run is meant: a number of steps, or a time.

    Attributes:
        steps: the number, ``None`` where a time is meant.
        seconds: the time.
    """

    steps: int | None
    seconds: float = 0.0

    @classmethod
    def parsed(cls, text: str) -> Amount:
        """Read ``3`` as steps, and ``500ms``, ``5s``, ``2min`` or ``1h`` as a time."""
        match = _AMOUNT.fullmatch(text)
        if match is None or (match["unit"] is None and "." in text):
            raise ValueError(text)
        if match["unit"] is None:
            return cls(int(text))
        return cls(None, float(match["number"]) * _UNITS_S[match["unit"]])

    @property
    def is_nothing(self) -> bool:
        """Whether no step and no time is meant."""
        return not self.steps and not self.seconds

    def __str__(self) -> str:
        """Return it as a command line has it."""
        return f"{self.seconds:g}s" if self.steps is None else str(self.steps)


SKIP, STEPS = Amount(DEFAULT_SKIPPED_STEPS), Amount(DEFAULT_RECORDED_STEPS)
"""What is passed, and recorded, where nobody says."""


class EndedBy(Enum):
    """What ends a step."""

    FIRST = auto()
    OPTIMIZER = auto()
    FORWARD = auto()
    FUNCTION = auto()


@dataclass(frozen=True, slots=True)
class StepOn:
    """What was asked to end a step.

    Attributes:
        by: what it is; by default what the script does first, its own profiler or an optimizer.
        name: the class of the optimizer or module, or the function; ``None`` for any.
        module: the module that the function is of.
    """

    by: EndedBy = EndedBy.FIRST
    name: str | None = None
    module: str | None = None

    @classmethod
    def parsed(cls, text: str) -> StepOn:
        """Read ``AdamW``, ``forward``, ``forward:GPT``, ``package.module:function``, ``:function``.

        Raises:
            ValueError: It is none of them.
        """
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
        """Whether only Python 3.12 and newer can tell."""
        return self.by is EndedBy.FUNCTION or (self.by is EndedBy.FORWARD and self.name is not None)

    def __str__(self) -> str:
        """Return it as a command line has it."""
        if self.by is EndedBy.FUNCTION:
            return f"{'' if self.module == '__main__' else self.module}:{self.name}"
        if self.by is EndedBy.FORWARD:
            return _FORWARD if self.name is None else f"{_FORWARD}:{self.name}"
        return self.name or ""


@dataclass(frozen=True, slots=True)
class Repeats:
    """Which steps are recorded again, and of which recordings the sessions are kept.

    Attributes:
        every: steps from the first of one recording to that of the next; ``None`` for one
            right after the other.
        slow: keep those alone that have a step so many times slower than the median.
        keep: so many sessions, the last ones.
    """

    every: int | None = None
    slow: float | None = None
    keep: int = 5


@dataclass(frozen=True, slots=True)
class Request:
    """What ``run`` was asked for.

    Attributes:
        program: what to run.
        folder: where the files go; ranks have folders of their own in it.
        skip: what is passed before the first recorded step.
        steps: what is recorded.
        step_on: what ends a step.
        force: replace a session that is there.
        recompile: compile those graphs once more that a cache has without a record.
        lines: watch which lines run.
        shapes: record the shapes of eager ops' inputs.
        source: keep the text of source.
        stops: end the script when what it recorded is written.
        repeats: what is recorded again; ``None`` for nothing.
    """

    program: Program
    folder: Path
    skip: Amount = SKIP
    steps: Amount = STEPS
    step_on: StepOn = StepOn()
    force: bool = False
    recompile: bool = False
    lines: bool = True
    shapes: bool = False
    source: bool = True
    stops: bool = False
    repeats: Repeats | None = None

    def check(self) -> None:
        """Look whether it can be done."""
        program = self.program
        if not (program.is_module or program.is_readable or program.holds_main):
            what = "a path to a Python file, or /dev/stdin for what standard input has"
            raise UsageError(f"there is no script {program.target}; give {what}")
        if self.steps.is_nothing:
            raise UsageError("--steps takes 1 or more, or a time, 5s")
        if self.step_on.needs_monitoring and (version := python_without_monitoring()) is not None:
            raise UsageError(
                f"--step-on {self.step_on} needs Python 3.12 or newer, and this is {version}; here "
                "an optimizer's class ends a step, or the call of what torch.compile made: forward"
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
