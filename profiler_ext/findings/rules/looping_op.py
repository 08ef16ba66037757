"""The rule for ops that launch a kernel for each part of what they are given."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from profiler_ext.findings.facts import CannotJudge, Facts
from profiler_ext.findings.groups import Kind, LaunchGroup
from profiler_ext.findings.launch_groups import candidates_of
from profiler_ext.findings.rule import Candidate, Rule

_REMEDIES: Final = (
    (
        r"pack",
        "run the RNN on the padded batch and mask its results; a last state by gather",
    ),
    (
        r"linalg|cholesky|svd|eig|qr\b|inverse|lu_|lstsq|det",
        "one batched call for many small matrices, each by itself where they are few and large, "
        "solve_triangular in place of a triangle's inverse; or an iteration of products",
    ),
    (r"norm$|histogram|unique", "an op with one kernel for all of it"),
)
_ELSE = "an op that does it in one kernel, or torch.compile of the function"


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    def texts(group: LaunchGroup) -> tuple[str, str]:
        launches = facts.launches_per_step(group.launches)
        remedy = next((text for name, text in _REMEDIES if re.search(name, group.what)), _ELSE)
        return f"{group.what} launches a kernel for each part ({launches:,} launches)", remedy

    return candidates_of(facts, Kind.OPS, texts)


RULE = Rule(
    name="looping_op",
    title="An op that launches many kernels",
    means="One call of an op launches 16 or more kernels, and the step waits for the CPU that "
    "launches them, or for what its backward does part by part: `pack_padded_sequence` copies each "
    "time step by itself, decompositions of `torch.linalg` run column by column. Packing a "
    "sequence and padding it again are one finding. RNNs and ops on lists of tensors are not "
    "reported.",
    because="Such an op loops over parts of its operand in C++. Each launch costs the CPU "
    "several microseconds, and autograd another op for each in the backward.",
    remedy="Another op, or the same on a whole batch. An RNN runs faster on padded sequences than "
    "on packed ones unless most of the batch is padding: mask the loss instead.",
    saving="How much shorter the step would be in a replay in which they cost the CPU a tenth, "
    "with what the backward of the call launches, and in which such a call does not wait for the "
    "device, if most do; half of the time of kernels below 10 us is "
    "left, and of longer ones what they have blocks for, of the device's multiprocessors. A "
    "gradient needs at most four times the operations of what it is of: where the backward takes "
    "the device more than four times as long as the forward, an upper bound leaves its longer "
    "elementwise kernels out, up to that. They write for each part what only the op reads. Larger "
    "savings of other groups are replayed before it.",
    judge=_judge,
)
