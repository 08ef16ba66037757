"""Owns the columns of estimates: what launches moved and computed, how fast, how near the peak."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pandas.api.extensions import ExtensionArray

from profiler_ext.exporters.tables.arrays import real, whole
from profiler_ext.records import Analysis, Ints, MaskedInts
from profiler_ext.rooflines.estimates import Estimates, MaskedFloats, estimate
from profiler_ext.rooflines.peaks import Peak


def achieved_by_launch(analysis: Analysis, peaks: Mapping[str, Peak]) -> dict[str, ExtensionArray]:
    """Return the columns of estimates, one row for each launch.

    Args:
        analysis: an analysis.
        peaks: what devices can do at best, by the words of their names.
    """
    estimated = estimate(analysis, peaks)
    return {
        "est_bytes": whole(estimated.bytes),
        "est_flops": whole(estimated.flops),
        "est_gb_per_s": real(estimated.gb_per_s),
        "est_tflop_per_s": real(estimated.tflop_per_s),
        "est_peak_fraction": real(estimated.peak_fraction),
    }


def achieved_by_key(
    analysis: Analysis, peaks: Mapping[str, Peak], key: Ints, launch: Ints, rows: int
) -> dict[str, ExtensionArray]:
    """Return the columns of estimates, summed over whole launches.

    Args:
        analysis: what attribution found.
        peaks: what devices can do at best.
        key: the row that each launch counts for.
        launch: the launches, each once for a row.
        rows: how many rows there are.

    Returns:
        The columns; a rate is over the time of those launches that have an estimate.
    """
    estimated, sums = estimate(analysis, peaks), _Sums(key, launch, rows)
    duration = analysis.launches.duration_ns
    moved, moving_ns = sums.of(estimated.bytes, duration)
    computed, computing_ns = sums.of(estimated.flops, duration)
    return {
        "est_bytes": whole(moved),
        "est_flops": whole(computed),
        "est_gb_per_s": real(moved / moving_ns),
        "est_tflop_per_s": real(computed / computing_ns / 1000),
        "est_peak_fraction": real(_larger(sums, estimated, duration)),
    }


class _Sums:
    def __init__(self, key: Ints, launch: Ints, rows: int) -> None:
        self._key, self._launch, self._rows = key, launch, rows

    def of(self, values: MaskedInts, duration_ns: Ints) -> tuple[MaskedInts, MaskedInts]:
        """Return the sums of the known values, and the time of their launches."""
        known = ~np.ma.getmaskarray(values)[self._launch]
        key, launch = self._key[known], self._launch[known]
        total, took_ns = np.zeros(self._rows, np.int64), np.zeros(self._rows, np.int64)
        np.add.at(total, key, values.data[launch])
        np.add.at(took_ns, key, duration_ns[launch])
        nothing = np.bincount(key, minlength=self._rows) == 0
        return np.ma.MaskedArray(total, nothing), np.ma.MaskedArray(
            took_ns, nothing | (took_ns == 0)
        )

    def mean(self, values: MaskedFloats, duration_ns: Ints) -> MaskedFloats:
        """Return the mean of the known values, each weighed by its launch's time."""
        known = ~np.ma.getmaskarray(values)[self._launch]
        key, launch = self._key[known], self._launch[known]
        weighed, took_ns = np.zeros(self._rows), np.zeros(self._rows)
        np.add.at(weighed, key, values.data[launch] * duration_ns[launch])
        np.add.at(took_ns, key, duration_ns[launch])
        return np.ma.MaskedArray(weighed, took_ns == 0) / np.ma.masked_equal(took_ns, 0)


def _larger(sums: _Sums, estimate: Estimates, duration_ns: Ints) -> MaskedFloats:
    parts = (estimate.bandwidth_fraction, estimate.arithmetic_fraction)
    largest: MaskedFloats = np.ma.stack([sums.mean(part, duration_ns) for part in parts]).max(
        axis=0
    )
    return largest
