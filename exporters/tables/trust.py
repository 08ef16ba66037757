"""The evidence for the rows of a summing table: time by rule and by gap."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

from profiler_ext.exporters.tables import kernels, sums
from profiler_ext.exporters.tables.selection import Filters, Selection
from profiler_ext.exporters.tables.table import Table
from profiler_ext.records.analysis import Analysis

Identity = tuple[Any, ...]
_KEYS: Mapping[str, Callable[..., sums.Keys]] = {
    "by_line": lambda analysis, view="model": sums.line_keys(analysis, view),
    "by_module": lambda analysis, depth=None: sums.module_keys(analysis, depth),
    "by_op": lambda analysis: sums.text_keys(analysis, "aten_op"),
    "by_link": lambda analysis: sums.text_keys(analysis, "forward_evidence"),
    "by_mechanism": lambda analysis: sums.text_keys(analysis, "mechanism"),
    "by_phase": sums.phase_keys,
    "by_kernel": sums.kernel_keys,
    "by_site": kernels.site_keys,
}
SUMMING_TABLES = frozenset(_KEYS)  # their rows sum shares of launches
EVIDENCE_COLUMNS = {
    "site_evidence_ns": "time by the rule that tied the launch to its call site or op",
    "line_evidence_ns": "time by the truth that the source line came from",
    "share_evidence_ns": "time by the rule that split it among the nodes of a kernel",
    "gaps_ns": "time by the reason why it is not attributed further",
}


@dataclass(frozen=True, slots=True)
class RowEvidence:
    """The time of one row by evidence, as far as it is known."""

    site_evidence_ns: dict[str, int] = field(default_factory=dict)
    line_evidence_ns: dict[str, int] = field(default_factory=dict)
    share_evidence_ns: dict[str, int] = field(default_factory=dict)
    gaps_ns: dict[str, int] = field(default_factory=dict)


def evidence_of_rows(
    analyses: Sequence[Analysis],
    name: str,
    identity: Sequence[str],
    *arguments: Any,
    **filters: Unpack[Filters],
) -> dict[Identity, RowEvidence] | None:
    """Return row identity to evidence, over all ranks; ``None`` for tables that sum no shares."""
    if name not in _KEYS:
        return None
    totals: dict[Identity, RowEvidence] = {}
    for analysis in analyses:
        _add(totals, analysis, _KEYS[name](analysis, *arguments), identity, Selection(**filters))
    return totals


def _add(
    totals: dict[Identity, RowEvidence],
    analysis: Analysis,
    keys: sums.Keys,
    identity: Sequence[str],
    selection: Selection,
) -> None:
    shares = keys.select(analysis, selection)
    rows, place = _identities(keys.table, identity), analysis.shares.place[shares.rows]
    launch = analysis.shares.launch[shares.rows]
    site = analysis.launches.evidence.codes[launch]
    split = analysis.launches.share_evidence
    texts = {
        "site_evidence_ns": (site, analysis.launches.evidence.strings),
        "line_evidence_ns": (place, [each.evidence for each in analysis.places]),
        "share_evidence_ns": (split.codes[launch], split.strings),
        "gaps_ns": (place, [each.gap for each in analysis.places]),
    }
    for column, (code, words) in texts.items():
        for row, at, time in shares.pairs_ns(code):
            if words[at]:
                of_row = getattr(totals.setdefault(rows[row], RowEvidence()), column)
                of_row[words[at]] = of_row.get(words[at], 0) + time


def _identities(table: Table, names: Sequence[str]) -> list[Identity]:
    return list(zip(*(table[name].tolist() for name in names), strict=True))
