"""The rule for weights that each call of inference computes again, or runs next to the layer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, removal
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

_LEARNS = (Phase.BACKWARD, Phase.RECOMPUTE, Phase.GRADIENT_ACCUMULATION, Phase.OPTIMIZER)
_COMPUTED = re.compile(r"(^|\.)parametrizations\.")
_NORMALISES = re.compile(r"aten::_weight_norm\w*$")
# Modules of PEFT, torchtune and diffusers: lora_A, lora_down, hada_w1_a of LoHa, lokr_w1
_ADAPTER = re.compile(r"\.(?:[a-z]+_)*(?:lora|loha|lokr|dora)(?:_\w+|layer)?(?:\.|$)", re.I)
_ADDS = frozenset({"aten::add", "aten::add_", "aten::mul", "aten::mul_", "aten::to"})


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    if facts.launches.phase.where(*_LEARNS).any():
        return ()
    return _candidates(facts)


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
    title="Weights that inference could merge once",
    means="Nothing is trained, and each call computes weights from others (a parametrization such "
    "as `weight_norm`), or runs two products of low rank (LoRA) next to each layer. Modules of "
    "LoRA are known by their names.",
    because="While weights change, they have to be computed in each call. In inference they do "
    "not: the same numbers are computed again, and Python takes longer than the kernels do. "
    "LoRA adds two products and a sum over all activations to each layer.",
    remedy="`torch.nn.utils.parametrize.remove_parametrizations(module, 'weight')` (or "
    "`remove_weight_norm`) once; `parametrize.cached()` where weights change between calls. "
    "`merge_and_unload()` of PEFT adds what it learned to the weights; keep it apart only to swap "
    "it often.",
    saving="Time of these launches on the critical path; if the CPU is behind, how much shorter "
    "the step is in a replay without them and the Python before them.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
