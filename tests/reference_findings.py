"""The table of findings in recorded sessions, for the page of measured recommendations."""

from __future__ import annotations

from profiler_ext.findings import RULES
from tests.findings.reported import sections

_MOST_NAMED = 8
ALARMS = """## False alarms

What the rules report of {count} recorded sessions: the cases of `tests/cases`, the worked examples,
ranks alone and merged, and steps of the trials above with their flaw and without, on H200s and one
H100. Each finding was reviewed (`tests/findings/reported.txt`, checked by a test); each flaw is
real: a case whose kernels take microseconds is bound by its launches. `unlike_siblings` reports
none of twelve models whose layers differ by design, and no rule reports micro-batches under CUDA
graphs.

In the first review of the worked examples and the two GPUs 10 of 32 findings in 15 sessions were
false alarms: what they reported is as it should be, or their remedy would not have helped. One of
126 in the other sessions was, about a region that is compiled by itself. All are fixed, and no
others are known:

- `launch_bound` (2) recommended faster launches where the CPU was in Python between steps for 28 of
  36 ms;
- `recompilation` (3) reported a stage that is compiled with and without gradients;
- `replay_copy` (1) reported two copies of 3 us for the CPU time of launching them, which no remedy
  saves;
- `late_rank` (4) recommended to merge the sessions of pipeline stages, which wait for messages:
  merging does not show who came last.
"""


def false_alarms() -> str:
    """Return the section: each rule with how many sessions it reports, and which."""
    reported = {
        name: {line.split()[0] for line in text.splitlines() if not line.startswith("not judged")}
        for name, text in sections().items()
    }
    rows = [
        (rule.name, [name for name, rules in reported.items() if rule.name in rules])
        for rule in RULES
    ]
    lines = [f"| `{rule}` | {len(names)} | {_named(names)} |" for rule, names in rows]
    table = "\n".join(("| rule | sessions | which |", "| --- | ---: | --- |", *lines))
    return f"{ALARMS.format(count=len(reported))}\n{table}"


def _named(names: list[str]) -> str:
    more = [f"{len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else []
    return ", ".join([*names[:_MOST_NAMED], *more])
