"""The rule for work of the CPU within a step for which the device waits."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from profiler_ext.findings.cpu_work import places_of
from profiler_ext.findings.facts import (
    CannotJudge,
    Facts,
    idle_by_line,
    idle_spans_per_step,
    median_per_step,
)
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.groups import Kind, LaunchGroup
from profiler_ext.findings.launch_groups import groups_of
from profiler_ext.findings.rule import Candidate, Rule

_MAX_LINES = 6
# What a line's text says of what it does, and the remedy; the first that matches counts
_REMEDIES: Final = (
    (
        r"\bgc\.|\.collect\(",
        "call gc.collect() every hundredth step at most; gc.freeze() before the loop leaves the "
        "model's objects out",
    ),
    (
        r"\.save\(|save_pretrained|state_dict\(|\bdump\(",
        "save less often, or from a thread or process of its own (torch.distributed.checkpoint."
        "async_save)",
    ),
    (
        r"tokeni[sz]|\bencode\(|\bdecode\(|\bopen\(|\bread\(|imread|\bload\(",
        "do it ahead of the step in workers of a DataLoader, or once and store the result",
    ),
    (
        r"torch\.(as_)?tensor\(|from_numpy|np\.|numpy",
        "make the tensor once, or ahead of the step in workers of a DataLoader; torch.from_numpy "
        "of an array in place of torch.tensor of lists",
    ),
    (
        r"\bprint\(|\blog|\.write\(|progress|tqdm|wandb|writer\.",
        "log every hundredth step, or from another thread",
    ),
    (r"sleep\(", "remove the sleep"),
)
_ELSE = (
    "move that Python out of the step, into workers of a DataLoader or into another thread "
    "(logging, checks, data preparation); launching faster does not help"
)
_ON_DEVICE = (
    "do it on the GPU (device=... where the tensor is made), once (a buffer of the module), or "
    "ahead of the step in workers of a DataLoader"
)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    groups = groups_of(facts, Kind.COMPUTING, Kind.PYTHON)
    return [_candidate(facts, each) for each in groups]


def _candidate(facts: Facts, group: LaunchGroup) -> Candidate:
    idle = group.idle(facts)
    is_computing = group.kind is Kind.COMPUTING
    doing = f"{group.what} and other ops run" if is_computing else "Python launches nothing"
    if is_computing and group.count == 1:
        doing = f"{group.what} runs"
    where = _lines(facts, group)
    return Candidate(
        summary=f"GPU idle: {doing}{' on the CPU' if is_computing else ' for long'}",
        est_saving_ns=group.saving_ns,
        confidence=Confidence.ESTIMATED,
        remedy=_ON_DEVICE if is_computing else _remedy(group.location.code or ""),
        location=group.location,
        evidence=(
            Figure("times a step", group.count),
            Figure("idle spans a step", idle_spans_per_step(facts, idle)),
            Figure("idle in the recorded step", median_per_step(facts, idle), FigureUnit.NS),
            *([Figure("at lines", where, FigureUnit.TEXT)] if where else ()),
        ),
        idle=idle,
    )


def _remedy(code: str) -> str:
    return next((remedy for text, remedy in _REMEDIES if re.search(text, code)), _ELSE)


def _lines(facts: Facts, group: LaunchGroup) -> str:
    """Return the lines of a group, where it has several."""
    lines = idle_by_line(facts, group.idle(facts), places_of(facts))
    numbers = sorted(
        {each.line for each in lines if each.line and each.file == group.location.file}
    )
    if len(numbers) < 2:
        return ""
    more = f" and {len(numbers) - _MAX_LINES} more" if len(numbers) > _MAX_LINES else ""
    return ", ".join(map(str, numbers[:_MAX_LINES])) + more


RULE = Rule(
    name="cpu_work",
    title="The device waits while the CPU computes",
    means="Ops compute on the CPU within the step, or Python launches nothing for a millisecond "
    "or longer, while the device has nothing to run. The work of one function is one finding, with "
    "its lines; code that ran too often for its lines to be recorded counts at the line that calls "
    "it. That of a `DataLoader` has a rule of its own.",
    because="A tensor that is made, converted or transformed on the CPU takes many times as long "
    "as on the device, and the launches behind it wait. So do those behind `gc.collect()`, a "
    "checkpoint that is written, text that is tokenized or a log.",
    remedy="Make tensors on the device (`device=...`), once (a buffer of the module), or in "
    "workers of a `DataLoader`. Collect garbage, save and log less often, or elsewhere.",
    saving="How much shorter the step would be in a replay without that work, after the groups of "
    "launches and work that save more. What takes half a millisecond or longer without a "
    "break takes as long without a recording. Where steps cannot be replayed, the idle time "
    "meanwhile.",
    not_on_cpu="the launches ran on the CPU, which waits for no launch",
    judge=_judge,
)
