"""The rule for optimizers that update one parameter, or one group of them, after the other."""

from __future__ import annotations

from collections.abc import Iterable

from profiler_ext.findings.facts import CannotJudge, Facts
from profiler_ext.findings.groups import Kind, LaunchGroup
from profiler_ext.findings.launch_groups import GROUPS, candidates_of
from profiler_ext.findings.rule import Candidate, Rule
from profiler_ext.kineto import names

# Source: ``torch/optim``, the classes whose ``__init__`` has ``fused``
_FUSED = frozenset({"Adagrad", "Adam", "AdamW", "SGD"})


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    strings = facts.analysis.recording.trace.events.name.strings
    classes = sorted(set(filter(None, map(names.optimizer_step, strings))))
    name = classes[0] if len(classes) == 1 else "the optimizer"

    def texts(group: LaunchGroup) -> tuple[str, str]:
        launches = facts.launches_per_step(group.launches)
        of = group.what or "parameters"
        updates = f"{name} updates {group.count:,} {of} one by one ({launches:,} launches)"
        if group.what == GROUPS:
            return updates, _MERGED
        is_fused = classes and set(classes) <= _FUSED
        return updates, f"{name}(..., fused=True)" if is_fused else _FOREACH

    return candidates_of(facts, Kind.OPTIMIZER, texts)


_MERGED = "one group for all parameters of equal settings (lr, weight_decay)"
_FOREACH = "foreach=True, or torch.compile(optimizer.step)"

RULE = Rule(
    name="per_parameter_optimizer",
    title="An optimizer that updates parameters one by one",
    means="The optimizer launches kernels for each parameter by itself, at least 32 a step, and "
    "the step waits for them. So does a fused or `foreach` one that is given 32 groups of "
    "parameters or more.",
    because="With `foreach=False`, or in an optimizer of one's own with a loop, each parameter "
    "costs several launches of short kernels, AdamW's eight. The CPU needs longer to launch them "
    "than the device to run them. Fused and `foreach` optimizers launch for each group.",
    remedy="`fused=True` in Adam, AdamW, Adagrad and SGD: a few kernels for all parameters. "
    "`foreach=True` in others, or `torch.compile(optimizer.step)`. Parameters "
    "of equal settings (lr, weight_decay) in one group.",
    saving="How much shorter the step would be in a replay in which a tenth of the CPU's time for "
    "these launches is left and a third of their device time: a fused AdamW reads and writes each "
    "value once. Of groups the CPU's time for one of them is left, and half of the time of kernels "
    "below 10 us, and of longer ones as in `python_loop`. Larger savings of other groups of "
    "launches are replayed before it, so that no time is saved twice.",
    judge=_judge,
)
