"""Owns the estimated rates: bytes and operations of a launch over the time it took.

Bytes and operations are Inductor's estimates of a call site. They count what the kernel asks
for, so what a cache serves makes the bandwidth higher than the memory's.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

import numpy as np

from exporters.perfetto.packets import Argument
from profiler_ext.peaks import PEAKS, Peak, peak_of
from profiler_ext.records import Analysis, CallSite, SiteKind

GB_PER_S, TFLOP_PER_S = "est_gb_per_s", "est_tflop_per_s"
# A cache serves up to about twice the memory's bandwidth; beyond this the estimate is wrong.
MOST_OF_PEAK = 2
_NOT_CREDIBLE = f"more than {MOST_OF_PEAK} times the peak: not drawn"


class Rates:
    """The estimated rates of launches; a launch without an estimate has none."""

    def __init__(self, analysis: Analysis, peaks: Mapping[str, Peak] = PEAKS) -> None:
        self._analysis = analysis
        devices = analysis.recording.trace.devices
        self._peaks = {device.id: peak_of(device.name, peaks) for device in devices}
        # The trace of a CPU's launches may name GPUs too; those are not what ran them.
        self._on_gpu = ~np.ma.getmaskarray(analysis.launches.stream)
        self._refused: set[int] = set()
        self._known: dict[int, dict[str, float]] = {}
        for rows in _runs_of_sites(analysis):
            self._estimate(rows)

    def peak(self, row: int) -> Peak | None:
        """Return what a launch's device can do at best, ``None`` where it is not known."""
        device = int(self._analysis.launches.device[row])
        return self._peaks.get(device) if self._on_gpu[row] else None

    def of(self, row: int) -> Mapping[str, float]:
        """Return a launch's rates by ``GB_PER_S`` and ``TFLOP_PER_S``."""
        return self._known.get(row, {})

    def arguments(self, row: int) -> dict[str, Argument | None]:
        """Return what a launch's slice says of its rates."""
        rates = self.of(row)
        said: dict[str, Argument | None] = {key: round(rate, 1) for key, rate in rates.items()}
        peak = self.peak(row)
        if peak is not None and rates:
            said["est_percent_of_peak_bandwidth"] = _percent(rates, GB_PER_S, peak.gb_per_s)
            said["est_percent_of_peak_arithmetic"] = _percent(rates, TFLOP_PER_S, peak.tflop_per_s)
        if row in self._refused:
            said["estimate"] = _NOT_CREDIBLE
        return said

    def _estimate(self, rows: list[int]) -> None:
        launches = self._analysis.launches
        duration_ns = int(launches.duration_ns[rows].sum())
        rates = _rates(_site(self._analysis, rows[0]), duration_ns)
        if self._credible(rows[0], rates):
            self._known.update(dict.fromkeys(rows, rates) if rates else {})
        else:
            self._refused.update(rows)

    def _credible(self, row: int, rates: Mapping[str, float]) -> bool:
        peak = self.peak(row)
        return peak is None or (
            rates.get(GB_PER_S, 0) <= MOST_OF_PEAK * peak.gb_per_s
            and rates.get(TFLOP_PER_S, 0) <= MOST_OF_PEAK * peak.tflop_per_s
        )


def _runs_of_sites(analysis: Analysis) -> list[list[int]]:
    """Return launches of call sites; an extern's kernels share its estimate, so they stay together.

    They follow each other on one stream under one operator.
    """
    launches = analysis.launches
    placed = ~(np.ma.getmaskarray(launches.graph) | np.ma.getmaskarray(launches.call_site))
    rows = np.flatnonzero(placed)
    stream = launches.stream.filled(-1)
    order = rows[np.lexsort((launches.start_ns[rows], stream[rows], launches.device[rows]))]
    graph, site = launches.graph.data.tolist(), launches.call_site.data.tolist()
    op = launches.op_event.filled(-1).tolist()
    extern = launches.kind.where(SiteKind.EXTERN).tolist()

    def run_of(row: int) -> tuple[int, ...]:
        alone = -1 if extern[row] else row
        return graph[row], site[row], op[row], int(stream[row]), alone

    return [list(run) for _, run in groupby(order.tolist(), run_of)]


def _site(analysis: Analysis, row: int) -> CallSite | None:
    provenance = analysis.recording.graphs[int(analysis.launches.graph[row])].provenance
    ordinal = int(analysis.launches.call_site[row])
    sites = () if provenance is None else provenance.call_sites
    return sites[ordinal] if ordinal < len(sites) else None


def _rates(site: CallSite | None, duration_ns: int) -> dict[str, float]:
    if site is None or duration_ns == 0:
        return {}
    found = {
        GB_PER_S: _number(site.bytes_moved, duration_ns),
        TFLOP_PER_S: _number(site.flops, duration_ns * 1000),
    }
    return {key: rate for key, rate in found.items() if rate is not None}


def _number(expression: str | None, per: int) -> float | None:
    # With dynamic shapes the estimate is a formula of sizes that the trace does not hold.
    return int(expression) / per if expression is not None and expression.isdecimal() else None


def _percent(rates: Mapping[str, float], key: str, peak: float) -> float | None:
    return round(100 * rates[key] / peak, 1) if key in rates else None
