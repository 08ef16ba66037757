"""The rule for weights that each step joins, or each call of inference computes again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.autograd_nodes import accumulates, node_around, nodes_of
from profiler_ext.findings.code_of_lines import number_joined
from profiler_ext.findings.facts import CannotJudge, Facts, launches_by_line
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, removal
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Ints, flag_rows
from profiler_ext.records.vocabulary import Phase, Scope

_LEARNS = (Phase.BACKWARD, Phase.RECOMPUTE, Phase.GRADIENT_ACCUMULATION, Phase.OPTIMIZER)
_COMPUTED = re.compile(r"(^|\.)parametrizations\.")
_NORMALISES = re.compile(r"aten::_weight_norm\w*$")
# Modules of PEFT, torchtune and diffusers: lora_A, lora_down, hada_w1_a of LoHa, lokr_w1
_ADAPTER = re.compile(r"\.(?:[a-z]+_)*(?:lora|loha|lokr|dora)(?:_\w+|layer)?(?:\.|$)", re.I)
# The backward of what joins tensors
_GOES_APART = re.compile(r".*: (?:Cat|Stack)Backward0$")
_JOINS = frozenset({"aten::cat", "aten::stack"})
_COPIES = "aten::copy_"
_FEWEST = 2
_ADDS = frozenset({"aten::add", "aten::add_", "aten::mul", "aten::mul_", "aten::to"})


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    if facts.launches.phase.where(*_LEARNS).any():
        return _joined(facts)
    return _candidates(facts)


def _joined(facts: Facts) -> Iterator[Candidate]:
    """Yield what lines take that join parameters: the parts of the gradient go to parameters."""
    events, nodes = facts.analysis.recording.trace.events, nodes_of(facts)
    others = np.flatnonzero(~accumulates(facts, nodes))
    joins = np.flatnonzero(flag_rows(events.name, _is_of_joined)[nodes.event])
    if not len(joins):
        return
    # The engine adds to a parameter as soon as it has all that is added
    until = np.append(others, len(nodes))[np.searchsorted(others, joins, side="right")]
    is_join = facts.of_op(_JOINS.__contains__) & facts.launches.phase.where(Phase.FORWARD)
    forward = np.flatnonzero(facts.in_steps(is_join & facts.launches.scope.where(Scope.EAGER)))
    numbers = np.append(events.sequence_number.filled(-1), -1)[facts.called_ops(forward)]
    copies = np.flatnonzero(facts.in_steps(facts.of_op(_COPIES.__eq__)))
    at = node_around(facts, copies)
    of_join = np.searchsorted(joins, at, side="right") - 1
    for own in launches_by_line(facts, forward):
        is_of_line = np.isin(nodes.sequence[joins], numbers[np.isin(forward, own)])
        count = int((until - joins - 1)[is_of_line].max(initial=0))
        written = number_joined(facts.place(int(own[0])).code or "")
        if count < _FEWEST or written not in (None, count):
            continue
        is_behind = is_of_line[of_join] & (at >= joins[0]) & (at < until[of_join])
        yield removal(
            facts,
            np.union1d(own, copies[is_behind]),
            f"each step joins {count} parameters",
            "keep one parameter and take parts of it, or compute with each by itself",
        )


def _is_of_joined(name: str) -> bool:
    return _GOES_APART.match(name) is not None


def _candidates(facts: Facts) -> Iterator[Candidate]:
    computed = _rows(facts, facts.mainly(_computes))
    if len(computed):
        summary = "inference computes its weights again in each call"
        remedy = "parametrize.remove_parametrizations(module, 'weight'), once before"
        yield removal(facts, computed, summary, remedy, with_python=True)
    adapters = {
        (place.module or "")[: match.start()]
        for place in facts.analysis.places
        if (match := _ADAPTER.search(place.module or "")) is not None
    }
    beside = _rows(facts, facts.mainly(lambda place: _is_beside(place, adapters)))
    if len(beside):
        summary = "inference runs products of low rank (LoRA) next to layers"
        remedy = "add each to its layer's weight once (PEFT: merge_and_unload())"
        yield removal(facts, beside, summary, remedy, with_python=True)


def _rows(facts: Facts, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Ints:
    return np.flatnonzero(facts.in_steps(chosen & facts.launches.scope.where(Scope.EAGER)))


def _computes(place: Place) -> bool:
    is_computed = _COMPUTED.search(place.module or "") is not None
    return is_computed or _NORMALISES.match(place.aten_op or "") is not None


def _is_beside(place: Place, adapters: set[str]) -> bool:
    """Tell whether a place is in an adapter, or adds its result to that of the layer."""
    module = place.module or ""
    is_sum = module in adapters and place.aten_op in _ADDS
    return is_sum or _ADAPTER.search(module) is not None


RULE = Rule(
    name="unmerged_weight",
    title="Weights that could be merged once",
    means="Each step of training joins parameters (`cat`, `stack`): directly after the backward of "
    "the op autograd adds to two parameters or more, to as many as the line lists. Or nothing is "
    "trained, and each call computes weights from others (a parametrization such "
    "as `weight_norm`), or runs two products of low rank (LoRA) next to each layer. Modules of "
    "LoRA are known by their names.",
    because="What joins parameters reads and writes all of them, and torch may copy the parts of "
    "the gradient, which are strided. While weights change, others have to be computed from them "
    "in each call. In inference they do not: the same numbers are computed again, and Python takes "
    "longer than the kernels do. "
    "LoRA adds two products and a sum over all activations to each layer.",
    remedy="One parameter, of which what needs a part takes a slice; an optimizer then treats all "
    "parts alike. Or what follows for each part by itself. In inference "
    "`torch.nn.utils.parametrize.remove_parametrizations(module, 'weight')` (or "
    "`remove_weight_norm`) once; `parametrize.cached()` where weights change between calls. "
    "`merge_and_unload()` of PEFT adds what it learned to the weights; keep it apart only to swap "
    "it often.",
    saving="Time of these launches on the critical path; if the CPU is behind, how much shorter "
    "the step is in a replay without them and the Python before them.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
