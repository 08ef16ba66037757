"""What came of the trials of the gate: what it said of each, and the counts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from profiler_ext.comparison.gate import Outcome, judge
from profiler_ext.comparison.records import Account
from profiler_ext.sessions.comparing import ComparedSessions, diff

CONDITION = "each line step.py > +2.5% and > +1us"


def judged(work: Path, trial: str, line: int | None, rounds: int) -> dict[str, object]:
    """Return what the gate says of a trial, with so many rounds of it."""
    sides = [
        [work / "runs" / trial / f"{side}_{n}" for n in range(rounds)] for side in ("base", "head")
    ]
    compared = diff(*sides)
    (result,) = judge(compared.comparison, [CONDITION]).results
    failed = [each.name for each in result.of(Outcome.FAILED)]
    (planted,) = [each for each in result.judged if each.name == f"step.py:{line}"] or (None,)
    return {
        "trial": trial,
        "rounds": rounds,
        "planted": f"step.py:{line}" if line else None,
        "failed": failed,
        "verdict": verdict(failed, f"step.py:{line}" if line else None),
        "planted_change": planted
        and {
            "base_ns": planted.base,
            "fraction": planted.fraction,
            "interval": planted.interval and [planted.interval.low_ns, planted.interval.high_ns],
        },
        "unclear": [each.name for each in result.of(Outcome.INCONCLUSIVE)],
        "too_few": len(result.of(Outcome.TOO_FEW)),
        "device": _change(compared),
        "lines_of_runs_ns": _lines_of_runs(compared),
    }


def verdict(failed: list[str], planted: str | None) -> str:
    """Return what came of a trial in a word."""
    if planted is None:
        return "false alarm" if failed else "quiet"
    if planted not in failed:
        return "missed" if not failed else "misplaced"
    return "found" if failed == [planted] else "found, and more"


def _change(compared: ComparedSessions) -> dict[str, object]:
    change = compared.comparison.device
    return {"base_ns": change.base_per_step_ns, "fraction": change.fraction}


def _lines_of_runs(compared: ComparedSessions) -> dict[str, dict[str, list[float]]]:
    """Return the mean step of each run by line, so that the noise can be looked at."""
    found: dict[str, dict[str, list[float]]] = {}
    for name, side in zip(("base", "head"), compared.comparison.matched.sides, strict=True):
        of_line: dict[str, list[float]] = {}
        steps = Counter(side.run_of_step.tolist())
        parts = zip(side.parts.subject.tolist(), side.parts.step.tolist(), strict=True)
        for (subject, step), ns in zip(parts, side.parts.duration_ns.tolist(), strict=True):
            at = side.parts.subjects[subject]
            line = f"{at.file}:{at.line}" if at.account == Account.DEVICE else str(at.account)
            run = int(side.run_of_step[step])
            of_line.setdefault(line, [0.0] * len(side.runs))[run] += ns / steps[run]
        found[name] = of_line
    return found


def summary(found: list[dict[str, object]]) -> int:
    """Print what came of all trials; return 1 where one did not come out as it should.

    Args:
        found: what was judged.
    """
    for is_first in (True, False):
        own = [each for each in found if (each["rounds"] == 1) is is_first]
        counts = Counter((("same", "5% in a line")[bool(e["planted"])], e["verdict"]) for e in own)
        print("one run of each side" if is_first else "all rounds", dict(counts))
    for each in found:
        change = each["planted_change"]
        fraction = f"{change['fraction']:+.2%}" if isinstance(change, dict) else ""
        print(each["trial"], each["rounds"], each["verdict"], each["failed"], fraction)
    good = {"found", "quiet"}
    return int(not found or any(each["verdict"] not in good for each in found))
