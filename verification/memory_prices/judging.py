"""Whether bytes and time are as a recommendation claims, and the table of all trials."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from profiler_ext.memory.recommendations import MemoryFinding
from profiler_ext.memory.rules import find
from profiler_ext.sessions.merging import load

from .mended import MENDED
from .programs import TRIALS, Claim, Trial
from .unfitted import UNFITTED

__all__ = ["BY_NAME", "claim_of", "claims_of", "is_right", "table", "tiny_table", "tried_table"]

BYTES = 0.05  # of what is saved
FACTOR = 1.5
NOISE = 0.01  # of a step: below that a time cannot be told from none
Row = dict[str, Any]
BY_NAME = {each.name: each for each in (*TRIALS, *MENDED, *UNFITTED)}


def claims_of(session: Path) -> list[Row]:
    """What the recommendations of a session say."""
    return [claim_of(each) for each in find(load(session).analyses[0]).ranked]


def claim_of(finding: MemoryFinding) -> Row:
    """What a recommendation says, for JSON."""
    return {
        "rule": finding.rule,
        "module": finding.location.module,
        "peak_bytes": finding.peak_bytes,
        "predicted_peak_bytes": finding.predicted_peak_bytes,
        "saved_bytes": finding.saved_bytes,
        "extra_ns": finding.extra_ns,
        "figures": [[each.name, each.value] for each in finding.evidence],
    }


def chosen(trial: Trial, claims: Sequence[Row]) -> Row | None:
    """The claim that a trial is about."""
    own = (each for each in claims if each["rule"] == trial.rule)
    return next((each for each in own if trial.module in ("", each["module"])), None)


def as_claim(row: Row) -> Claim:
    """The claim as the programs take it."""
    return Claim(row["module"], tuple((name, value) for name, value in row["figures"]))


def saved_bytes(row: Row) -> int:
    """What the edit saves, as measured; below 0 where it costs."""
    return int(row["as_it_is"]["peak_bytes"] - row["edited"]["peak_bytes"])


def extra_ns(row: Row) -> int:
    """What a step takes more, as measured."""
    return int(row["edited"]["step_ns"] - row["as_it_is"]["step_ns"])


def bytes_are_right(row: Row, claim: Row) -> bool:
    """Whether the saving is that which is claimed, within 5%."""
    saved, claimed = saved_bytes(row), int(claim["saved_bytes"])
    return abs(claimed - saved) <= BYTES * abs(saved)


def time_is_right(row: Row, claim: Row) -> bool | None:
    """Whether the time is that which is claimed, within a factor; ``None`` without a claim."""
    if claim["extra_ns"] is None:
        return None
    claimed, measured = int(claim["extra_ns"]), extra_ns(row)
    least = NOISE * int(row["as_it_is"]["step_ns"])
    if abs(claimed) <= least and abs(measured) <= least:
        return True
    return claimed * measured > 0 and 1 / FACTOR <= claimed / measured <= FACTOR


def is_right(row: Row, claim: Row) -> bool:
    """Whether a claim is right in all that it says."""
    return bytes_are_right(row, claim) and time_is_right(row, claim) is not False


def table(rows: Sequence[Row]) -> str:
    """All trials in Markdown, and how many are right."""
    lines = [
        "| program | recommendation | peak MB | saved MB, claimed | measured | off | "
        "time more ms, claimed | measured | step ms | right |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    judged = []
    for row in rows:
        claim = None if "failure" in row else chosen(BY_NAME[row["name"]], row["claims"])
        if claim is None or "edited" not in row:
            lines.append(f"| {row['name']} | {row.get('failure', 'no such claim')} |")
            continue
        judged.append(is_right(row, claim))
        lines.append(_line(row, claim))
    lines += ["", f"{sum(judged)} of {len(rows)} are right."]
    return "\n".join(lines) + "\n"


def _line(row: Row, claim: Row) -> str:
    saved, time = saved_bytes(row), time_is_right(row, claim)
    off = (claim["saved_bytes"] - saved) / abs(saved) if saved else float("nan")
    claimed = "not said" if claim["extra_ns"] is None else f"{claim['extra_ns'] / 1e6:+.2f}"
    wrong = [
        *([] if bytes_are_right(row, claim) else ["bytes"]),
        *(["time"] if time is False else []),
    ]
    cells = (
        row["name"],
        claim["rule"],
        f"{row['as_it_is']['peak_bytes'] / 1e6:,.0f}",
        f"{claim['saved_bytes'] / 1e6:,.0f}",
        f"{saved / 1e6:,.0f}",
        f"{100 * off:+.1f}%",
        claimed,
        f"{extra_ns(row) / 1e6:+.2f}",
        f"{row['as_it_is']['step_ns'] / 1e6:.1f}",
        " and ".join(wrong) + " wrong" if wrong else "yes",
    )
    return f"| {' | '.join(cells)} |"


def tiny_table(rows: Sequence[Row]) -> str:
    """Whether both forms of each trial ran, and their losses."""
    lines = ["| program | losses as it is | edited | claimed of it, tiny |", "|" + " --- |" * 4]
    for row in rows:
        if "failure" in row:
            lines.append(f"| {row['name']} | {row['failure']} |")
            continue
        losses = (", ".join(f"{each:.6g}" for each in own) for own in row["losses"])
        lines.append(f"| {row['name']} | {' | '.join(losses)} | {', '.join(row['rules'])} |")
    return "\n".join(lines) + "\n"


def tried_table(rows: Sequence[Row]) -> str:
    """What ``profiler-ext try --memory`` measured of each remedy beside what was claimed."""
    lines = [
        "| program | remedy | verdict | peak MB | saved MB, claimed | measured | off | right |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    judged: list[float] = []
    for row in rows:
        if "failure" in row:
            lines.append(f"| {row['name']} | {row['failure']} |")
        own = [each for each in row.get("tried", ()) if each["claimed_bytes"] is not None]
        if not own and "failure" not in row:
            lines.append(f"| {row['name']} | nothing claimed could be tried |")
        for each in own:
            lines.append(_tried_line(row["name"], each))
            judged += [] if (off := tried_off(each)) is None else [off]
    right = sum(abs(off) <= BYTES for off in judged)
    return "\n".join([*lines, "", f"{right} of {len(judged)} claims were right."]) + "\n"


def tried_off(tried: Row) -> float | None:
    """By which part of what was saved the claim is off; ``None`` where nothing was measured."""
    saved = tried_saved_bytes(tried)
    return (tried["claimed_bytes"] - saved) / abs(saved) if saved else None


def tried_saved_bytes(tried: Row) -> int | None:
    """What a remedy saved: of reserved memory, where that is what it is for."""
    name = "reserved_bytes" if "expandable_segments" in tried["remedies"] else "peak_bytes"
    before, after = tried[f"base_{name}"], tried.get(name)
    return None if before is None or after is None else int(before - after)


def _tried_line(name: str, tried: Row) -> str:
    saved, off = tried_saved_bytes(tried), tried_off(tried)
    peak = tried["base_peak_bytes"]
    cells = (
        name,
        "+".join(tried["remedies"]),
        tried["verdict"],
        "" if peak is None else f"{peak / 1e6:,.0f}",
        f"{tried['claimed_bytes'] / 1e6:,.0f}",
        "not measured" if saved is None else f"{saved / 1e6:,.0f}",
        "" if off is None else f"{100 * off:+.1f}%",
        "" if off is None else "yes" if abs(off) <= BYTES else "no",
    )
    return f"| {' | '.join(cells)} |"
