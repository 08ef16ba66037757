"""The rule for batch norms that inference could fold into the convolutions before them."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, removal
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

_NORM = re.compile(r"aten::\w*batch_norm$")
_OF_BATCH = re.compile(r"batch_norm_collect_statistics|bn_fw_tr|batchnorm_fwtr", re.I)
_ADDS = frozenset({"aten::add", "aten::add_"})
_CONVOLVES = re.compile(r"aten::(conv\d|_?convolution|conv_transpose)")
_LEARNS = (Phase.BACKWARD, Phase.RECOMPUTE, Phase.GRADIENT_ACCUMULATION, Phase.OPTIMIZER)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    launches = facts.launches
    if launches.phase.where(*_LEARNS).any():
        return ()
    eager = launches.scope.where(Scope.EAGER)
    is_norm = facts.mainly(lambda place: _NORM.match(place.aten_op or "") is not None)
    norms = np.flatnonzero(facts.in_steps(is_norm & eager))
    convolves = facts.mainly(lambda place: _CONVOLVES.match(place.aten_op or "") is not None)
    names = {launches.name[row] for row in norms.tolist()}
    # Statistics of the batch are no constants
    if not len(norms) or any(map(_OF_BATCH.search, names)) or not (convolves & eager).any():
        return ()
    summary = "batch norms of inference run by themselves"
    remedy = (
        "torch.nn.utils.fusion.fuse_conv_bn_eval for each pair, or torch.compile with "
        "TORCHINDUCTOR_FREEZING=1"
    )
    convolutions = np.flatnonzero(facts.in_steps(convolves & eager))
    gone = norms if _have_bias(facts, convolutions) else _without_longest(facts, norms)
    return (removal(facts, gone, summary, remedy),) if len(gone) else ()


def _have_bias(facts: Facts, convolutions: Ints) -> bool:
    """Tell whether most convolutions add a bias, which eager torch does in a kernel of its own."""
    is_added = facts.of_op(_ADDS.__contains__)[convolutions]
    calls = facts.called_ops(convolutions)
    return 2 * len(np.unique(calls[is_added])) > len(np.unique(calls[~is_added]))


def _without_longest(facts: Facts, norms: Ints) -> Ints:
    """Return the launches of each norm without its longest, in whose place comes a bias's."""
    duration_ns = facts.launches.duration_ns[norms]
    calls = facts.called_ops(norms)
    order = np.lexsort((duration_ns, calls))
    is_last = np.diff(calls[order], append=-2) != 0
    return np.sort(norms[order[~is_last]])


RULE = Rule(
    name="unfolded_norm",
    title="Batch norms that inference could fold",
    means="Nothing is trained, and eager batch norms with fixed statistics run between the "
    "convolutions.",
    because="With fixed statistics a batch norm multiplies each channel by a number and adds one. "
    "The convolution before it can do both: its weights are multiplied once, and its bias changed. "
    "By itself, the norm reads and writes all activations once more.",
    remedy="`torch.nn.utils.fusion.fuse_conv_bn_eval(conv, norm)` for each pair, once, in "
    "`model.eval()`; or `torch.compile` with freezing, which folds all of them.",
    saving="Time of the batch norms on the critical path, or of launching them if the CPU is "
    "behind. Convolutions without a bias get one, which eager torch adds in a kernel that reads "
    "and writes as much as the norm's: then the longest launch of each norm is not counted.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
