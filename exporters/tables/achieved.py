"""Owns the columns of rooflines: what launches moved and computed, and how near the peak."""

from __future__ import annotations

from collections.abc import Mapping

from pandas.api.extensions import ExtensionArray

from profiler_ext.exporters.tables.arrays import real, text, whole
from profiler_ext.records import Analysis, Ints
from profiler_ext.rooflines.peaks import Peak
from profiler_ext.rooflines.rooflines import rooflines
from profiler_ext.rooflines.sums import part_sums


def achieved_by_launch(analysis: Analysis, peaks: Mapping[str, Peak]) -> dict[str, ExtensionArray]:
    """Return the columns of rooflines, one row for each launch.

    Args:
        analysis: an analysis.
        peaks: what devices can do at best, by the words of their names.
    """
    found = rooflines(analysis, peaks)
    return {
        "est_bytes": whole(found.bytes),
        "est_flops": whole(found.flops),
        "est_gb_per_s": real(found.gb_per_s),
        "est_tflop_per_s": real(found.tflop_per_s),
        "est_attainable_tflop_per_s": real(found.attainable_tflop_per_s),
        "est_peak_fraction": real(found.peak_fraction),
        "unit": text(found.unit, absent=""),
        "unit_evidence": text(found.unit_evidence, absent=""),
        "bound": text(found.bound, absent=""),
        "roofline_ns": whole(found.roofline_ns),
        "could_save_ns": whole(found.could_save_ns),
    }


def achieved_by_key(
    analysis: Analysis, peaks: Mapping[str, Peak], share: Ints, key: Ints, rows: int
) -> dict[str, ExtensionArray]:
    """Return the columns of rooflines, summed over parts of launches.

    Args:
        analysis: what attribution found.
        peaks: what devices can do at best.
        share: the parts to sum, as rows of its shares.
        key: the row that each counts for.
        rows: how many rows there are.

    Returns:
        The columns; a rate is over the time of those parts that have an estimate.
    """
    found = part_sums(analysis, rooflines(analysis, peaks), share, key, rows).told()
    return {
        "est_bytes": whole(found.bytes),
        "est_flops": whole(found.flops),
        "est_gb_per_s": real(found.gb_per_s),
        "est_tflop_per_s": real(found.tflop_per_s),
        "est_attainable_tflop_per_s": real(found.attainable_tflop_per_s),
        "est_peak_fraction": real(found.peak_fraction),
        "unit": text(found.unit, absent=""),
        "bound": text(found.bound, absent=""),
        "roofline_ns": whole(found.roofline_ns),
        "could_save_ns": whole(found.could_save_ns),
    }
