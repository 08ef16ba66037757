"""What to know of two sides before trusting their difference, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import numpy as np

from profiler_ext.comparison.comparison import Comparison
from profiler_ext.comparison.records import Account, Verdict
from profiler_ext.comparison.sides import Side
from profiler_ext.comparison.significance import (
    CPU_BETWEEN_RUNS,
    DEVICE_BETWEEN_RUNS,
    MIN_STEPS,
    has_enough_samples,
)
from profiler_ext.records.vocabulary import LaunchKind

_OF_COMPILES = (
    "what compiling takes is known once a run: several runs of each side tell a change from noise"
)
# A step is an outlier beyond this part of the median, and three times as far as any other step.
_OUTLIER_PART = 0.1


def notes(comparison: Comparison, by: str | None = None) -> tuple[str, ...]:
    """Return the notes of a comparison."""
    rows = comparison.table(by).rows if by == "compile" else ()
    return (
        *((_OF_COMPILES,) if any(r.change.verdict is Verdict.TOO_FEW for r in rows) else ()),
        *_environment_notes(comparison),
        *_version_notes(comparison),
        *_uncertainty_notes(comparison),
        *_outlier_step_notes(comparison),
        *_missing_line_notes(comparison),
        *_memory_notes(comparison),
    )


def devices_differ(comparison: Comparison) -> bool:
    """Return whether the sides ran on devices of different names."""
    base, head = (_of(side, "devices") for side in comparison.matched.sides)
    return base != head


def _environment_notes(comparison: Comparison) -> Iterator[str]:
    base, head = comparison.matched.sides
    if devices_differ(comparison):
        yield (
            f"the devices differ ({_listed(base, 'devices')}; {_listed(head, 'devices')}): compare "
            "the parts of a step as well as its times"
        )
    if _of(base, "torch_version") != _of(head, "torch_version"):
        yield (f"torch differs: {_listed(base, 'torch_version')}; {_listed(head, 'torch_version')}")
    if _of(base, "ranks") != _of(head, "ranks"):
        yield f"the ranks differ: {_listed(base, 'ranks')}; {_listed(head, 'ranks')}"


def _memory_notes(comparison: Comparison) -> Iterator[str]:
    has = [
        any(analysis.recording.memory is not None for analysis in side.analyses)
        for side in comparison.matched.sides
    ]
    if has[0] != has[1]:
        name = "base" if has[0] else "head"
        yield f"only the {name} has a memory record: record both with --memory to compare memory"


def _uncertainty_notes(comparison: Comparison) -> Iterator[str]:
    base, head = comparison.matched.sides
    if comparison.total.verdict is Verdict.EQUAL:
        return
    if not has_enough_samples(*comparison.samples):
        yield (
            f"too few steps to tell a change from noise ({_steps(base)} and {_steps(head)}): "
            f"record at least {MIN_STEPS} of each side (--steps {MIN_STEPS}), or several runs"
        )
    elif len(base.runs) == len(head.runs) == 1:
        yield (
            "each side is one run: runs of one program are taken to differ as is usual "
            f"({_usual(base, head)}); several runs of each side tell it"
        )


def _usual(base: Side, head: Side) -> str:
    if base.on_cpu and head.on_cpu:
        return f"the CPU's time by {CPU_BETWEEN_RUNS:.0%}"
    return f"device time by {DEVICE_BETWEEN_RUNS:.2%}, idle time by {CPU_BETWEEN_RUNS:.0%}"


def _version_notes(comparison: Comparison) -> Iterator[str]:
    for name, side in _named(comparison):
        if side.versions:
            yield (
                f"the runs of the {name} are of different versions of {', '.join(side.versions)}: "
                "its lines are those of the first run"
            )


def _outlier_step_notes(comparison: Comparison) -> Iterator[str]:
    if comparison.total.verdict is Verdict.EQUAL:
        return
    for (name, side), sample in zip(_named(comparison), comparison.samples, strict=True):
        if len(side.runs) > 1 or len(sample.run) < MIN_STEPS:
            continue
        steps = (sample.sums.sum(axis=1) / sample.ranks).tolist()
        usual = median(steps)
        *others, far = sorted(steps, key=lambda step: abs(step - usual))
        if usual and abs(far - usual) > max(_OUTLIER_PART * usual, 3 * abs(others[-1] - usual)):
            yield (
                f"step {steps.index(far) + 1} of {len(steps)} of the {name} took {far / usual:.2f} "
                "times as long as usual: it is in the means, and makes intervals longer"
            )


def _missing_line_notes(comparison: Comparison) -> Iterator[str]:
    known = [_fraction_with_line(side) for side in comparison.matched.sides]
    if max(known) < 0.5:
        yield (
            f"only {known[0]:.0%} and {known[1]:.0%} of the device time has a source line: compare "
            "by op, kernel or phase"
        )
    for name, (mine, other) in (("base", (known[0], known[1])), ("head", (known[1], known[0]))):
        if mine < 0.5 <= other:
            yield (
                f"only {mine:.0%} of the {name}'s device time has a source line, of the other side "
                f"{other:.0%}: rows are new and gone where one side does not know its line"
            )


def _fraction_with_line(side: Side) -> float:
    parts, subjects = side.parts, side.parts.subjects
    is_work = np.array(
        [s.account == Account.DEVICE and s.kind != LaunchKind.COMMUNICATION for s in subjects],
        np.bool_,
    )
    has_line = np.array([subject.file is not None for subject in subjects], np.bool_)
    total_ns = int(parts.duration_ns[is_work[parts.subject]].sum())
    with_line_ns = int(parts.duration_ns[(is_work & has_line)[parts.subject]].sum())
    return with_line_ns / total_ns if total_ns else 1.0


def _named(comparison: Comparison) -> Iterator[tuple[str, Side]]:
    return zip(("base", "head"), comparison.matched.sides, strict=True)


def _of(side: Side, name: str) -> set[object]:
    return {getattr(run, name) for run in side.runs}


def _listed(side: Side, name: str) -> str:
    values = (getattr(run, name) for run in side.runs)
    every = (each for v in values for each in (v if isinstance(v, tuple) else (v,)))
    return ", ".join(dict.fromkeys(map(str, every))) or "unknown"


def _steps(side: Side) -> str:
    steps = sum(run.steps for run in side.runs)
    return f"{steps} in {len(side.runs)} runs" if len(side.runs) > 1 else str(steps)
