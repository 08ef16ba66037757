"""Owns the table of what the rules say of recorded sessions, for the page of findings."""

from __future__ import annotations

from profiler_ext.findings import RULES
from tests.findings.said import sections

_MOST_NAMED = 8
ALARMS = """## False alarms

What the rules say of {count} sessions that were recorded on H200s: the cases of `tests/cases`,
ranks alone and merged, and steps of the trials above with their flaw and without. Each line of it
was judged (`tests/findings/said.txt`, which a test holds), and each flaw is there: a case
whose kernels take some microseconds is bound by its launches. Of twelve models whose layers differ
by design `unlike_siblings` says nothing, and of micro-batches under CUDA graphs no rule does.
"""


def false_alarms() -> str:
    """Return the section: each rule with how many sessions it speaks of, and which these are."""
    said = {
        name: {line.split()[0] for line in text.splitlines() if not line.startswith("not judged")}
        for name, text in sections().items()
    }
    rows = [
        (rule.name, [name for name, rules in said.items() if rule.name in rules]) for rule in RULES
    ]
    lines = [f"| `{rule}` | {len(names)} | {_named(names)} |" for rule, names in rows]
    table = "\n".join(("| rule | said of | namely |", "| --- | ---: | --- |", *lines))
    return f"{ALARMS.format(count=len(said))}\n{table}"


def _named(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= _MOST_NAMED else "steps of small models"
