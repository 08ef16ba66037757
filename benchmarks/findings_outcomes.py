"""What a case of the trial of findings came to, and the table of it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from profiler_ext.findings import Finding, Findings, SavingPer

FACTOR = 2.0


@dataclass(frozen=True)
class Outcome:
    """What a case came to; times in milliseconds a step."""

    rule: str
    words: str
    predicted_ms: float | None = None
    flawed_ms: float | None = None
    remedied_ms: float | None = None
    gain_ms: float | None = None
    gain_quartiles_ms: tuple[float, float] | None = None
    others: str = ""
    on_remedied: str = ""
    failure: str = ""
    is_claimed: bool = True
    """Whether the rule says how much is at stake; some say only that the flaw is there."""

    @property
    def ratio(self) -> float | None:
        """Predicted over measured."""
        if self.predicted_ms is None or not self.gain_ms or not self.is_claimed:
            return None
        return self.predicted_ms / self.gain_ms

    @property
    def holds(self) -> bool:
        """Whether the prediction is within the factor, and the rule silent without the flaw."""
        is_near = self.ratio is not None and 1 / FACTOR <= self.ratio <= FACTOR
        is_predicted = self.predicted_ms is not None and not self.is_claimed
        return (is_near or is_predicted) and not self.on_remedied and not self.failure


def outcome_of(
    rule: str,
    words: str,
    findings: tuple[Findings, Findings],
    times: Sequence[tuple[float, float]],
) -> Outcome:
    """Return what a case came to.

    Args:
        rule: the rule that should find its flaw.
        words: what the flaw and the remedy are.
        findings: what the rules say of the step with the flaw, and without it.
        times: milliseconds a step of both, round by round.
    """
    flawed, remedied = findings
    own = [each for each in flawed.ranked if each.rule == rule]
    gains = [before - after for before, after in times]
    return Outcome(
        rule,
        words,
        predicted_ms=sum(each.est_saving_ns for each in own) / 1e6 if own else None,
        is_claimed=not own or any(each.saving_per is not SavingPer.UNKNOWN for each in own),
        flawed_ms=statistics.median(before for before, _ in times),
        remedied_ms=statistics.median(after for _, after in times),
        gain_ms=statistics.median(gains),
        gain_quartiles_ms=_quartiles(gains),
        others=_predicted_text(flawed.ranked, rule),
        on_remedied=_predicted_text([each for each in remedied.ranked if each.rule == rule]),
    )


def _quartiles(gains: list[float]) -> tuple[float, float]:
    """Return the first and the third quartile."""
    if len(gains) < 2:
        return gains[0], gains[0]
    first, _, third = statistics.quantiles(gains, n=4)
    return first, third


def _predicted_text(found: Iterable[Finding], besides: str = "") -> str:
    """Return the findings of all rules but one, each with its milliseconds."""
    named = (f"{f.rule} {f.est_saving_ns / 1e6:.2f}" for f in found if f.rule != besides)
    return ", ".join(named)


def table(outcomes: Iterable[Outcome]) -> str:
    """Return the outcomes as a table in Markdown."""
    heads = ("rule", "flaw; remedy", "ms/step", "predicted", "measured gain", "ratio", "remedied")
    rules = ("---", "---", "---:", "---:", "---:", "---:", "---")
    rows = [heads, rules, *map(_row, outcomes)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _row(outcome: Outcome) -> tuple[str, ...]:
    if outcome.failure:
        return (outcome.rule, outcome.words, "", "", "", "", f"failed: {outcome.failure}")
    predicted = "nothing" if outcome.predicted_ms is None else f"{outcome.predicted_ms:.2f}"
    if not outcome.is_claimed:
        predicted = "said, no claim"
    spread = ""
    if outcome.gain_quartiles_ms is not None:
        low, high = outcome.gain_quartiles_ms
        spread = f" ({low:.2f} to {high:.2f})"
    return (
        outcome.rule,
        outcome.words,
        f"{outcome.flawed_ms:.2f} to {outcome.remedied_ms:.2f}",
        predicted,
        f"{outcome.gain_ms:.2f}{spread}",
        "" if outcome.ratio is None else f"{outcome.ratio:.2f}",
        f"says {outcome.on_remedied}" if outcome.on_remedied else "silent",
    )
