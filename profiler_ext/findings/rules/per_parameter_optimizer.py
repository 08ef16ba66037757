"""The rule for optimizers that update one parameter after the other."""

from __future__ import annotations

from collections.abc import Iterable

from profiler_ext.findings.facts import CannotJudge, Facts
from profiler_ext.findings.launch_groups import Kind, LaunchGroup, candidate_of, groups_of
from profiler_ext.findings.rule import Candidate, Rule
from profiler_ext.kineto import names

# Source: ``torch/optim``, the classes whose ``__init__`` has ``fused``
_FUSED = frozenset({"Adagrad", "Adam", "AdamW", "SGD"})


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    if not facts.on_device:
        return CannotJudge("the launches ran on the CPU, which waits for no launch")
    groups = groups_of(facts, Kind.OPTIMIZER)
    if isinstance(groups, CannotJudge):
        return groups
    return tuple(_candidate(facts, each) for each in groups)


def _candidate(facts: Facts, group: LaunchGroup) -> Candidate:
    classes = _classes(facts)
    name = classes[0] if len(classes) == 1 else "the optimizer"
    count, launches = group.count, facts.launches_per_step(group.launches)
    updates = f"{name} updates {count:,} parameters one by one ({launches:,} launches)"
    return candidate_of(facts, group, f"CPU launch-bound: {updates}", _remedy(classes))


def _classes(facts: Facts) -> list[str]:
    strings = facts.analysis.recording.trace.events.name.strings
    return sorted(set(filter(None, map(names.optimizer_step, strings))))


def _remedy(classes: list[str]) -> str:
    if set(classes) <= _FUSED:
        return f"{classes[0] if len(classes) == 1 else 'the optimizer'}(..., fused=True)"
    return "foreach=True; or torch.compile(optimizer.step)"
