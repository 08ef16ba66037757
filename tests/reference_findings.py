"""Owns the table of what the rules say of recorded sessions, for the page of findings."""

from __future__ import annotations

from profiler_ext.findings import RULES
from tests.findings.said import sections

_MOST_NAMED = 8
ALARMS = """## False alarms

What the rules say of {count} sessions that were recorded on H200s, one of them on an H100: the
cases of `tests/cases`, the worked examples, ranks alone and merged, and steps of the trials above
with their flaw and without. Each line of it was judged (`tests/findings/said.txt`, which a test
holds), and each flaw is there: a case whose kernels take some microseconds is bound by its
launches. Of twelve models whose layers differ by design `unlike_siblings` says nothing, and of
micro-batches under CUDA graphs no rule does.

When the worked examples and the two GPUs were read for the first time, 10 of the 32 findings of
these 15 sessions were false alarms: what they told is as it should be, or their remedy would not
have helped. So was one of the 126 of the others, of a region that is compiled by itself. All are
mended, and more are not known:

- `launch_bound` (2) told to launch faster where the CPU was in Python between steps for 28 of 36
  ms;
- `recompilation` (3) told that a stage is compiled with and without gradients;
- `replay_copy` (1) told of two copies that run 3 us, as launching them costs the CPU more, which
  no remedy spares;
- `late_rank` (4) told stages of a pipeline, which wait for each other's messages, to merge their
  sessions, which does not tell who came last.
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
    more = [f"{len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else []
    return ", ".join([*names[:_MOST_NAMED], *more])
