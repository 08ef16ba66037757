"""Owns the columns of rooflines: what launches moved and computed, and how near the peak."""

from __future__ import annotations

from collections.abc import Mapping

from pandas.api.extensions import ExtensionArray

from profiler_ext.exporters.tables.arrays import real, text, whole
from profiler_ext.records import Analysis, Ints
from profiler_ext.rooflines.peaks import Peak
from profiler_ext.rooflines.rooflines import rooflines
from profiler_ext.rooflines.sums import part_sums


def roofline_columns_by_launch(analysis: Analysis, peaks: Mapping[str, Peak]) -> dict[str, ExtensionArray]:
    """Return the columns of rooflines, one row for each launch.

    Args:
        analysis: an analysis.
        peaks: what devices can do at best, by the words of their names.
    """
    sums = rooflines(analysis, peaks)
    return {
        "est_bytes": whole(sums.bytes),
        "est_flops": whole(sums.flops),
        "est_gb_per_s": real(sums.gb_per_s),
        "est_tflop_per_s": real(sums.tflop_per_s),
        "est_attainable_tflop_per_s": real(sums.attainable_tflop_per_s),
        "est_peak_fraction": real(sums.peak_fraction),
        "unit": text(sums.unit, absent=""),
        "unit_evidence": text(sums.unit_evidence, absent=""),
        "bound": text(sums.bound, absent=""),
        "roofline_ns": whole(sums.roofline_ns),
        "could_save_ns": whole(sums.could_save_ns),
    }


def roofline_columns_by_key(
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
    sums = part_sums(analysis, rooflines(analysis, peaks), share, key, rows).told()
    return {
        "est_bytes": whole(sums.bytes),
        "est_flops": whole(sums.flops),
        "est_gb_per_s": real(sums.gb_per_s),
        "est_tflop_per_s": real(sums.tflop_per_s),
        "est_attainable_tflop_per_s": real(sums.attainable_tflop_per_s),
        "est_peak_fraction": real(sums.peak_fraction),
        "unit": text(sums.unit, absent=""),
        "bound": text(sums.bound, absent=""),
        "roofline_ns": whole(sums.roofline_ns),
        "could_save_ns": whole(sums.could_save_ns),
    }
