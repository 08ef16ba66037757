"""Rooflines as text: what bounds a row, how close it is, and a step's MFU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from profiler_ext.exporters.views.formatting import percent_text, time_text, with_recorded_text
from profiler_ext.findings import find
from profiler_ext.records.analysis import Analysis
from profiler_ext.rooflines.compute_units import Bound, Unit
from profiler_ext.rooflines.utilisation import Utilisation, utilisation

_LEAST_COUNTED = 0.9
_ALL = 0.9995


def roofline_text(row: Mapping[str, Any]) -> str:
    """Return what bounds a row, and how close it is: ``62% memory``, ``41% bf16``, ``launch``.

    Without a roofline the unit alone (``fp32``), if known; with several ranks, whose peaks may
    differ, without the percentage.
    """
    bound, unit = row.get("bound"), (row.get("unit") or "").removesuffix("_tensor")
    if not bound or bound in (Bound.LATENCY, Bound.LAUNCH):
        return bound or unit
    by = unit if bound == Bound.COMPUTE and unit else bound
    fraction = row.get("est_peak_fraction")
    return by if fraction is None else f"{100 * fraction:.0f}% {by}"


def savings_text(row: Mapping[str, Any]) -> str:
    """Return a row's possible savings by the roofline model, ``""`` for none."""
    saved = row.get("could_save_ns")
    return time_text(saved) if saved else ""


def work_text(row: Mapping[str, Any]) -> str:
    """Return a row's traffic and operations, their rates, and the attainable rate."""
    parts = []
    if row["est_bytes"] is not None:
        rate = _rate(row["est_gb_per_s"], "GB/s")
        parts.append(f"moves {_amount(row['est_bytes'], 'B')}{rate}")
    if row["est_flops"]:
        rate = _rate(row["est_tflop_per_s"], "TFLOP/s")
        parts.append(f"does {_amount(row['est_flops'], 'FLOP')}{_unit(row)}{rate}{_best(row)}")
    return " and ".join(parts)


def _unit(row: Mapping[str, Any]) -> str:
    return f" in {Unit(row['unit']).label}" if row["unit"] else ""


def _rate(rate: float | None, unit: str) -> str:
    return "" if rate is None else f" at {figure(rate)} {unit}"


def _best(row: Mapping[str, Any]) -> str:
    best = row["est_attainable_tflop_per_s"]
    return "" if best is None else f", of {figure(best)} attainable"


def utilisation_texts(analyses: Sequence[Analysis]) -> tuple[str, ...]:
    """Return the MFU of each rank's steps, where known."""
    achieved = [(analysis, utilisation(analysis)) for analysis in analyses]
    known = [(analysis, each) for analysis, each in achieved if each is not None]
    return tuple(_text(each, analysis, len(analyses) > 1) for analysis, each in known)


def _text(achieved: Utilisation, analysis: Analysis, is_named: bool) -> str:
    settings = analysis.recording.settings
    of_rank = f"rank {settings.rank}: " if is_named else ""
    if achieved.counted_fraction < _LEAST_COUNTED:
        percent = percent_text(achieved.counted_fraction, 1)
        more = "" if "shapes" in settings.options else "; `--shapes` records those of eager ops"
        return f"{of_rank}MFU is not known: products of {percent} of their time have sizes{more}."
    units = ", ".join(_units(achieved))
    fraction = achieved.known_fraction
    known = "" if fraction > _ALL else f"; the unit of {percent_text(fraction, 1)} is known"
    amount = _amount(achieved.flops / len(analysis.steps), "FLOP")
    mfu = _mfu(achieved, find(analysis).unprofiled_step_ns)
    return f"{of_rank}MFU {mfu}: {amount} a step, {units}{known}."


def _mfu(achieved: Utilisation, unprofiled_step_ns: int | None) -> str:
    """Return the MFU in training, and while profiling if it differs."""
    recorded = percent_text(achieved.mfu, 1)
    if unprofiled_step_ns is None:
        return recorded
    return with_recorded_text(percent_text(achieved.mfu_of(unprofiled_step_ns), 1), recorded)


def _units(achieved: Utilisation) -> list[str]:
    """Return the units used, with fractions if there are several."""
    whole = sum(flops for _, flops in achieved.by_unit)
    if len(achieved.by_unit) == 1:
        return [achieved.by_unit[0][0]]
    return [f"{unit} {percent_text(flops, whole)}" for unit, flops in achieved.by_unit]


def _amount(amount: float, unit: str) -> str:
    for size, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if amount >= size:
            return f"{amount / size:.3g} {prefix}{unit}"
    return f"{amount:.0f} {unit}"


def figure(value: float) -> str:
    """Return a number with three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
